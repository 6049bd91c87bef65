import pytest

from rightsizer_local import machine

MEASURED = {
    "matmul_flop_per_s": 8e10,
    "copy_bytes_per_s": 8e9,
    "all_reduce_bytes_per_s": 1e9,
    "together_step_s": 0.3,
    "alone_step_s": 0.2,
}


def seconds(workers: int, most: int, **changes: float) -> float:
    cluster = machine.cpu_cluster(MEASURED | changes, workers=workers, most=most, memory_bytes=8e9)
    return machine.reference_s(cluster)


@pytest.mark.parametrize(("workers", "expected"), [(1, 0.2), (2, 0.2 * 1.5**0.5), (4, 0.3)])
def test_the_engine_predicts_the_reference_step_as_measured(workers, expected):
    assert seconds(workers, 4) == pytest.approx(expected, rel=0.01)


def test_a_machine_with_one_worker_has_no_slow_down():
    assert seconds(1, 1, together_step_s=0.2) == pytest.approx(0.2, rel=0.01)


def test_a_cluster_is_as_large_as_its_workers():
    cluster = machine.cpu_cluster(MEASURED, workers=3, most=4, memory_bytes=8e9)
    assert (cluster.max_gpus, cluster.gpus_per_node, cluster.gpu.architecture) == (3, 3, "cpu")


def test_there_is_a_core_to_use():
    assert machine.usable_cores() >= 1

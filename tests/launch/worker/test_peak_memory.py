import pytest

from rightsizer_launch.worker.peak_memory import allocated_peak_bytes, max_peak_bytes, should_measure


def test_a_peak_is_read_early_and_then_ever_more_rarely():
    assert [n for n in range(1, 40) if should_measure(n)] == [2, 4, 8, 16, 32]


@pytest.mark.parametrize(("measured", "said"), [(3e9, 3e9), (0.0, None)], ids=["a GPU", "none"])
def test_unmeasured_values_are_not_reported(measured, said):
    assert max_peak_bytes(None, lambda: measured) == said


def test_without_a_gpu_there_is_no_peak():
    assert allocated_peak_bytes() == 0.0

import functools
import io

import pytest
import yaml
from rich.console import Console

from rightsizer_engine.errors import InputError
from rightsizer_local import machine
from rightsizer_local import run as local

MEASURED = {
    "matmul_flop_per_s": 8e10,
    "copy_bytes_per_s": 8e9,
    "all_reduce_bytes_per_s": 1e9,
    "together_step_s": 0.3,
    "alone_step_s": 0.2,
}


@functools.cache  # clusters are fitted to what was measured: half a second
def two_workers() -> machine.Machine:
    clusters = tuple(machine.cpu_cluster(MEASURED, workers=n, most=2, memory_bytes=8e9) for n in (1, 2))
    return machine.Machine(clusters=clusters, cuda=False, threads_per_worker=1, description="two cores")


def manifest(folder, **launch):
    spec = {
        "model": {"dimensions": {"layers": 4, "hidden": 192, "heads": 4, "vocab": 256}},
        "workload": {"tokens": "1M", "sequenceLength": 128, "globalBatchSequences": 16, "precision": "fp32"},
        "deadline": {"finishWithin": "2s"},
        "resources": {"minGPUs": 2, "maxGPUs": 2},
        "launch": {"framework": "ddp", "command": ["train.py"]} | launch,
    }
    document = {"apiVersion": "rightsizer.dev/v1alpha1", "kind": "TrainingPlan", "metadata": {"name": "p"}}
    path = folder / "plan.yaml"
    path.write_text(yaml.safe_dump(document | {"spec": spec}))
    return path


def run(path, **options):
    console = Console(record=True, width=200, file=io.StringIO())
    code = local.run(
        path,
        local.Options(directory=path.parent / "run", **options),
        console=console,
        detect=lambda **_: two_workers(),
    )
    return code, console.export_text()


def test_a_deadline_that_cannot_be_met_starts_nothing(tmp_path):
    code, said = run(manifest(tmp_path))
    assert code == 3
    assert "--anyway" in said
    assert "2 to 1" not in said
    assert not (tmp_path / "run" / "run.json").exists()


@pytest.mark.parametrize("workers", [0, 3])
def test_more_workers_than_there_is_room_for_are_refused(tmp_path, workers):
    with pytest.raises(InputError, match="room for 1 to 2"):
        run(manifest(tmp_path), workers=workers)


@pytest.mark.parametrize("command", [[], ["torchrun", "train.py"]], ids=["none", "a launcher"])
def test_a_plan_that_cannot_be_launched_is_refused_before_anything_is_measured(tmp_path, command):
    with pytest.raises(InputError, match=r"launch\.command"):
        run(manifest(tmp_path, command=command))
    assert not (tmp_path / "run").exists()

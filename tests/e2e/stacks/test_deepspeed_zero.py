"""ZeRO's parts of two workers resume on one: a universal checkpoint trains on as the parts do."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from rightsizer_launch.worker.progress import ProgressReader

pytestmark = [pytest.mark.stacks]

EXAMPLE = Path(__file__).parents[3] / "examples/stacks/deepspeed/train.py"
STEP_TOKENS = 16 * 64


def _config(stage: int, workers: int) -> dict:
    """DeepSpeed's config, as in the plan's file: a global batch of 16."""
    share = 16 // workers
    batch = {
        "train_batch_size": 16,
        "train_micro_batch_size_per_gpu": share,
        "gradient_accumulation_steps": 1,
    }
    return batch | {"zero_optimization": {"stage": stage, "reduce_bucket_size": 100_000}}


@pytest.fixture
def train(environment_of, tmp_path):
    """train(folder, stage, workers=, steps=): the losses by step of the example, resumed if it was begun."""
    python, variables = environment_of("deepspeed")
    observed = ("-m", "rightsizer_launch.stacks.observe", "deepspeed", str(EXAMPLE))

    def run(folder: Path, stage: int, *, workers: int, steps: int) -> dict[int, float]:
        home = tmp_path / f"{folder.name}-{stage}-{workers}-{steps}"
        home.mkdir()
        config = home / "deepspeed.json"
        config.write_text(json.dumps(_config(stage, workers)))
        plan = {
            "RIGHTSIZER_RUN_DIRECTORY": str(home),
            "RIGHTSIZER_CHECKPOINT_PATH": str(folder),
            "RIGHTSIZER_CHECKPOINT_INTERVAL_S": "0",
            "RIGHTSIZER_GLOBAL_BATCH_SEQUENCES": "16",
            "RIGHTSIZER_SEQUENCE_TOKENS": "64",
            "RIGHTSIZER_TOKENS": str(steps * STEP_TOKENS),
        }
        torchrun = (python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}")
        argv = [*torchrun, *observed, "--deepspeed", "--deepspeed_config", str(config)]
        subprocess.run(argv, cwd=home, env=variables | plan, check=True, timeout=540)
        records = ProgressReader(home / "progress.jsonl").read()
        return {record.step: record.loss for record in records if record.event == "step"}

    return run


@pytest.mark.parametrize(("saved", "resumed"), [(2, 1), (3, 3)], ids=["2 to 1", "3"])
def test_one_worker_trains_on_as_two_would(train, tmp_path, saved, resumed):
    two, one = tmp_path / "two", tmp_path / "one"
    train(two, saved, workers=2, steps=4)
    shutil.copytree(two, one)
    expected = train(two, saved, workers=2, steps=8)
    trained = train(one, resumed, workers=1, steps=8)
    assert list(trained) == list(expected) == [5, 6, 7, 8]
    assert trained == pytest.approx(expected, abs=0.001)
    assert not list(one.glob("*.universal"))

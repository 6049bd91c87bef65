"""The one line of docs/stacks.md in a script that `rightsizer` does not adapt: measured, stopped, resumed."""

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
from stackrun import Run

pytestmark = [pytest.mark.stacks]

EXAMPLES = Path(__file__).parents[3] / "examples/stacks"
STEP_TOKENS = 16 * 64
IMPORT = "from rightsizer_launch.integrations.{} import {}\n"
TITAN = """
from rightsizer_launch.integrations.torchtitan import observed
from tiny import tiny_llama

config = tiny_llama()
config.training.local_batch_size, config.training.seq_len, config.training.steps = 8, 64, 24
config.checkpoint.enable, config.checkpoint.folder = True, "checkpoints"
config.parallelism.data_parallel_replicate_degree, config.parallelism.data_parallel_shard_degree = 2, 1
observed(config.build()).train()
"""

CHANGES: dict[str, tuple[tuple[str, str], ...]] = {
    "transformers": (
        ("\nconfig = ", IMPORT.format("hf", "RightsizerCallback, newest_checkpoint") + "\nconfig = "),
        ("logging_steps=10,", "logging_steps=10, use_cpu=True,"),
        ("num_train_epochs=1", "num_train_epochs=4"),
        ("    train_dataset=dataset,", "    train_dataset=dataset, callbacks=[RightsizerCallback()],"),
        ("train()", "train(resume_from_checkpoint=newest_checkpoint(training_args.output_dir))"),
    ),
    "lightning": (
        ("\nL.seed", IMPORT.format("lightning", "RightsizerCallback, newest_checkpoint") + "\nL.seed"),
        ("\nL.seed", "from rightsizer_launch.agent import checkpoint_directory\n\nL.seed"),
        ('devices="auto", strategy="ddp")', 'devices=2, strategy="ddp", callbacks=[RightsizerCallback()])'),
        ("max_epochs=1", "max_epochs=4"),
        ("=True))", '=True), ckpt_path=newest_checkpoint(checkpoint_directory("checkpoints")))'),
    ),
    "accelerate": (
        ("\nset_seed", IMPORT.format("accelerate", "observed") + "\nset_seed"),
        ("= Accelerator()", "= observed(Accelerator(cpu=True))"),
    ),
    "deepspeed": (
        ("\nparser = ", IMPORT.format("deepspeed", "observed") + "\nparser = "),
        ("= deepspeed.initialize(", "= observed(deepspeed.initialize("),
        ("    training_data=dataset,\n)", "    training_data=dataset,\n))"),
    ),
}
"""What a person changes in each example's script, on a machine without accelerators."""
STEPS = {"transformers": 512, "lightning": 512, "accelerate": 384, "deepspeed": 640, "torchtitan": 24}
"""Until the script's data, or its own limit, ends."""


def written(stack: str, folder: Path) -> None:
    """The example with its line, in a plan whose framework has no adapter."""
    shutil.copytree(EXAMPLES / stack, folder)
    script = TITAN if stack == "torchtitan" else (folder / "train.py").read_text()
    for old, new in CHANGES.get(stack, ()):
        assert old in script
        script = script.replace(old, new, 1)
    (folder / "own.py").write_text(script)
    options = ", --deepspeed, --deepspeed_config, zero.json" if stack == "deepspeed" else ""
    (folder / "zero.json").write_text('{"train_batch_size": 16, "train_micro_batch_size_per_gpu": 8}')
    plan = (folder / "plan.yaml").read_text()
    for field, value in {
        "framework": "custom",
        "command": f"[own.py{options}]",
        "tokens": STEPS[stack] * STEP_TOKENS,
        "interval": "1s",
    }.items():
        plan = re.sub(f"{field}: .*", f"{field}: {value}", plan)
    (folder / "plan.yaml").write_text(plan)


@pytest.mark.parametrize("stack", STEPS)
def test_one_line_measures_stops_and_resumes(stack: str, tmp_path: Path, environment_of) -> None:
    folder = tmp_path / "job"
    written(stack, folder)
    environment = environment_of(stack)
    with Run(environment, folder) as run:
        run.wait("a checkpoint", lambda: any(saved.step >= 4 for saved in run.records("checkpoint")))
        run.process.send_signal(signal.SIGTERM)
        assert run.end() == 130, (folder / "log").read_text()[-3000:]
        saved = run.records("checkpoint")[-1].step
    with Run(environment, folder) as run:
        assert run.end() == 0, (folder / "log").read_text()[-3000:]
    first, again = run.records("start")
    assert (first.step, again.step) == (0, saved)
    steps = [record.step for record in run.records("step")]
    assert steps == list(range(1, len(steps) + 1)), "each step is reported once"
    report = json.loads((folder / "D/report.json").read_text())
    assert report["state"] == "done"
    assert all(attempt["measured"]["tokensPerSecond"] > 0 for attempt in report["attempts"])

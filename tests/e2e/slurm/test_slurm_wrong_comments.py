"""A fault in a comment is in sbatch's own output, and no job is created."""

import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

NOBODY = 65534
PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: file}
spec:
  model: {name: gpt2}
  workload: {tokens: 1B}
"""


@pytest.fixture
def plans(site: Any) -> Path:
    """A folder with plan files of an unprivileged user, one of them root's."""
    texts = {
        "right": PLAN,
        "tokens": PLAN.replace("1B", "10Q"),
        "kind": PLAN.replace("TrainingPlan", "Pod"),
        "empty": "",
        "yaml": "{:",
        "root": PLAN,
    }
    for name, text in texts.items():
        path = site.folder / f"{name}.yaml"
        path.write_text(text)
        path.chmod(0o644)
        os.chown(path, 0 if name == "root" else NOBODY, -1)
    return site.folder


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("model=llama-3.1-8b tokens=10Q", "tokens: '10Q': write tokens as 100B, 1.5T"),
        ("model=llama-3.1-8b tokens=1B deadline=yesterday", "deadline: 'yesterday': write a duration as 72h"),
        ("model=llama-3.1-8b tokens=1B finish-by=2020-01-01T00:00:00Z", "is past; name a later moment"),
        ("model=lama-9000 tokens=1B", "model: 'lama-9000': unknown (all: `rightsizer models`"),
        ("model=llama-3.1-9b tokens=1B", "model: 'llama-3.1-9b': unknown; did you mean Llama 3"),
        ("model=llama-3.1-8b tokens=1B gpu=H1000", "gpu: 'H1000': unknown; did you mean H100-SXM5-80GB"),
        ("plan=plan.yaml", "plan: 'plan.yaml': must be an absolute path without .."),
        ("plan={}/none.yaml", "cannot be read by the daemon: No such file or directory"),
        ("plan={}", "must be a regular file that you own"),
        ("plan={}/root.yaml", "must be a regular file that you own"),
        ("plan={}/tokens.yaml", "spec.workload.tokens: '10Q': write tokens as 100B"),
        ("plan={}/kind.yaml", "kind"),
        ("plan={}/empty.yaml", "empty.yaml"),
        ("plan={}/yaml.yaml", "yaml.yaml"),
    ],
)
def test_a_wrong_comment_is_refused_at_its_submit(site: Any, plans: Path, words: str, said: str) -> None:
    comment = f"rightsizer: {words.format(plans)}"
    done = site.answered("sbatch", f"--comment={comment}", "--wrap=true", user="nobody")
    assert (done.returncode != 0, said in done.stderr) == (True, True), done.stderr
    assert site.slurm.run("squeue", "--noheader", "--user=nobody") == ""


def test_a_plan_file_that_is_right_is_sized(site: Any, plans: Path) -> None:
    comment = f"rightsizer: plan={plans}/right.yaml"
    argv = ("sbatch", "--parsable", "--hold", f"--comment={comment}", "--wrap=true")
    job = site.answered(*argv, user="nobody").stdout.strip()
    site.slurm.wait("it is sized", lambda: "minutes=" in site.slurm.job(job).get("AdminComment", ""))

"""The batch script: sized, quoted, elastic, without tasks per node."""

import shlex
import subprocess

import pytest

from rightsizer_api import loads, sizing
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.types import NoPlan
from rightsizer_slurm.cluster.pools import pools
from rightsizer_slurm.cluster.snapshot import Partition, SlurmCluster, SlurmNode
from rightsizer_slurm.sbatch.batch_script import (
    BatchSettings,
    batch_options,
    elastic_nodes,
    script,
    worker_of,
)
from rightsizer_slurm.sbatch.containers import Runtime
from rightsizer_slurm.submit.placement import AtLimit, Placement, PlacementLimits, fit

PLAN = """
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: small}
spec:
  model: {dimensions: {layers: 4, hidden: 192, heads: 4, vocab: 256}}
  workload: {tokens: 150k, sequenceLength: 128, globalBatchSequences: 16}
  deadline: {finishWithin: %s}
  resources: {minGPUs: %d, maxGPUs: %d, gpusPerNode: %d}
  launch:
    framework: ddp
    command: [train.py, --name, "it's; $(rm -rf /) `x`"]
    env: [{name: NOTE, value: "a 'quoted' $VALUE\\nof two lines"}]
    checkpoint: {path: ckpt, interval: 5s, grace: 30s}
  elasticity: {mode: Auto, minGPUs: 1}
"""
CLUSTER = SlurmCluster(
    partitions=(
        Partition(name="h100", nodes=("n1", "n2", "n3", "n4"), default=True, max_time_s=7 * 86_400.0),
        Partition(name="a100", nodes=("a1",), max_time_s=2 * 86_400.0, accounts=("nlp",)),
    ),
    nodes=(
        *(SlurmNode(name=f"n{i}", gpu="h100", gpus=8, gpus_used=8 * (i == 4), cpus=64) for i in range(1, 5)),
        SlurmNode(name="a1", gpu="a100", gpus=4, cpus=32),
    ),
)
PLACE = BatchSettings(
    run="/shared/runs/small", home="/home/a b", plan="/home/a b/plan.yaml", python="/opt/py thon/bin/python"
)


def plan_of(text=PLAN, *, deadline="30m", gpus=(2, 2), node_gpus=1):
    return loads(text % (deadline, *gpus, node_gpus), name="plan")


def fitted_of(plan=None, *, partition="h100", bounds=None, account=""):
    plan = plan or plan_of()
    candidates = pools(
        CLUSTER, wanted=sizing.gpu_types(plan), partition=partition, account=account,
        node_gpus=plan.spec.resources.gpus_per_node,
    )  # fmt: skip
    return fit(sizing.resolve(plan), candidates, have=CLUSTER.summary(), bounds=bounds)


def written(placement, settings):
    """The script of a placement."""
    return script(placement, worker_of(placement, settings), settings)


@pytest.fixture(scope="module")
def placement():
    return fitted_of()


def test_the_size_is_what_the_plan_allows(placement):
    assert isinstance(placement, Placement)
    assert (placement.nodes, placement.node_gpus, placement.cores, placement.waits) == (2, 1, 8, False)


def test_the_script_is_bash_and_requests_no_tasks_per_node(placement):
    text = written(placement, PLACE)
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    bounds = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert not [line for line in bounds if "ntasks" in line]
    assert "--nodes=2" in "\n".join(bounds)


def test_the_user_s_text_reaches_bash_unchanged(placement):
    text = written(placement, PLACE)
    body = "".join(text.partition("export NOTE")[1:]).partition("\nrestart=")[0]
    said = subprocess.run(
        ["bash", "-c", body + '\nprintf %s "$NOTE"'], capture_output=True, text=True, check=True
    ).stdout
    assert said == "a 'quoted' $VALUE\nof two lines"
    command = text.partition("-m rightsizer_launch.worker.entrypoint ")[2].partition(" &\n")[0]
    assert shlex.split(command) == ["train.py", "--name", "it's; $(rm -rf /) `x`"]


@pytest.mark.parametrize("text", ["/a\nb", "/a\x00b", "/a'b", "/a;b", "/a$b"], ids=repr)
def test_a_path_that_no_script_or_comment_can_hold_is_refused(placement, text):
    with pytest.raises(InputError):
        written(placement, BatchSettings(run=text, home="/h", plan="/p"))


def test_a_percent_sign_in_a_path_is_no_pattern(placement):
    options = batch_options(placement, BatchSettings(run="/r/100%j", home="/h", plan="/p"))
    assert "--output=/r/100%%j/slurm-%j.out" in options


def test_the_signal_leaves_the_workers_their_grace(placement):
    assert "--signal=B:USR1@150" in batch_options(placement, PLACE)


def test_sbatch_s_own_options_come_last_and_win(placement):
    options = batch_options(placement, BatchSettings(run="/r", home="/h", plan="/p", options=("--nodes=1",)))
    assert options[-1] == "--nodes=1"


def test_a_store_of_one_s_own_replaces_the_job_s(placement):
    text = written(placement, BatchSettings(run="/r", home="/h", plan="/p", rendezvous="store.example:29400"))
    assert "export PET_RDZV_ENDPOINT=store.example:29400" in text
    assert "rightsizer_launch.worker.rendezvous" not in text


def elastic_nodes_of(placement):
    return elastic_nodes(placement, worker_of(placement, PLACE))


def test_an_elastic_job_may_go_from_one_node_to_all(placement):
    assert worker_of(placement, PLACE).elastic.in_place
    assert elastic_nodes_of(placement)[0] == 1
    assert elastic_nodes_of(fitted_of(plan_of(gpus=(1, 4))))[1] == 4


def test_a_command_with_the_layout_keeps_its_size():
    fixed = fitted_of(plan_of(PLAN.replace("train.py,", "train.py, '{layout.dp}',")))
    assert not worker_of(fixed, PLACE).elastic.in_place
    assert elastic_nodes_of(fixed) == (fixed.nodes, fixed.nodes)


def test_an_image_runs_through_pyxis(placement):
    plan = plan_of(PLAN.replace("framework: ddp", "framework: ddp\n    image: ghcr.io/acme/train:1.4"))
    text = written(fitted_of(plan), BatchSettings(run="/r", home="/h h", plan="/p", container=Runtime.PYXIS))
    srun = text.partition("\nsrun ")[2].partition(" &\n")[0]
    summary = shlex.split(srun.replace("\\\n", " "))
    assert "--container-image=ghcr.io#acme/train:1.4" in summary
    assert "--container-mounts=/r:/r,/h h:/h h" in summary


def test_an_image_runs_through_apptainer_in_each_task(placement):
    plan = plan_of(PLAN.replace("framework: ddp", "framework: ddp\n    image: ghcr.io/acme/train:1.4"))
    settings = BatchSettings(run="/r", home="/h h", plan="/p", mounts=("/ckpt",), container=Runtime.APPTAINER)
    text = written(fitted_of(plan), settings)
    srun = shlex.split(text.partition("\nsrun ")[2].partition(" &\n")[0].replace("\\\n", " "))
    assert not any(word.startswith("--container") for word in srun)
    task = srun[srun.index("apptainer") :]
    assert task[:6] == ["apptainer", "exec", "--nv", "--bind=/r:/r", "--bind=/h h:/h h", "--bind=/ckpt:/ckpt"]
    assert '\nmkdir -p "$run" /ckpt && cd ' in text  # neither runtime mounts a folder that is not there
    image = task.index("docker://ghcr.io/acme/train:1.4")
    assert task[image + 1 : image + 4] == ["python3", "-m", "rightsizer_launch.worker.entrypoint"]


def test_a_limit_shorter_than_the_training_needs_a_checkpoint():
    chained = fitted_of(bounds=PlacementLimits(time_s=600.0, at_limit=AtLimit.SAVED))
    assert chained.at_limit is AtLimit.SAVED
    assert chained.time_s == 600.0
    bare = PLAN.replace("    checkpoint: {path: ckpt, interval: 5s, grace: 30s}\n", "")
    with pytest.raises(InputError, match=r"spec\.launch\.checkpoint"):
        fitted_of(plan_of(bare), bounds=PlacementLimits(time_s=600.0, at_limit=AtLimit.SAVED))


def test_a_plan_with_an_active_deadline_is_not_requeued_so_it_must_fit():
    once = plan_of(PLAN.replace("spec:\n", "spec:\n  activeDeadline: 96h\n", 1))
    with pytest.raises(InputError, match=r"spec\.activeDeadline: '96h': .* is not requeued"):
        fitted_of(once, bounds=PlacementLimits(time_s=600.0, at_limit=AtLimit.SAVED))


def test_busy_gpus_are_waited_for():
    wide = PLAN.replace("globalBatchSequences: 16", "globalBatchSequences: 64")
    assert fitted_of(plan_of(wide, gpus=(32, 32), node_gpus=8)).waits


def test_more_than_there_is_is_no_plan():
    assert isinstance(fitted_of(plan_of(gpus=(40, 40), node_gpus=8)), NoPlan)


@pytest.mark.parametrize(
    ("partition", "account", "message"),
    [
        ("gpu", "", "is not a partition of this cluster; there are a100, h100"),
        ("a100", "vision", "has no partition for this job"),
    ],
    ids=["unknown", "closed to the account"],
)
def test_a_partition_that_will_not_do_is_refused_in_a_line(partition, account, message):
    with pytest.raises(InputError, match=message):
        fitted_of(partition=partition, account=account)


def test_the_job_s_output_begins_with_its_size_price_and_reason():
    line = next(
        line
        for line in written(fitted_of(), PLACE).splitlines()
        if line.startswith("echo 'rightsizer: sized: ")
    )
    assert "done in" in line
    assert "; not smaller because of: " in line

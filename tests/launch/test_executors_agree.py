"""The local executor, the operator and Slurm start the same worker for the same plan and size."""

import datetime as dt
import functools
import re
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from rightsizer_api import loads, sizing
from rightsizer_api.placeholders import layout_values
from rightsizer_api.sizing import resolve
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.search.size import size
from rightsizer_launch.argv.torchrun import program_arguments
from rightsizer_launch.running.run_folder import RunDirectory
from rightsizer_launch.worker_spec import LaunchSize, elastic_range
from rightsizer_local.machine import Machine
from rightsizer_local.training import job_spec
from rightsizer_operator.manifests import objects
from rightsizer_operator.reconcile.attempts import with_launch
from rightsizer_operator.reconcile.persisted import PersistedStatus
from rightsizer_operator.reconcile.state import ReconcileState
from rightsizer_operator.values import names
from rightsizer_operator.values.attempt import AttemptRecord
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.sized import SizedPlan
from rightsizer_operator.values.snapshot import Snapshot
from rightsizer_slurm.cluster.pools import Pool
from rightsizer_slurm.sbatch.batch_script import BatchSettings, elastic_nodes, script, worker_of
from rightsizer_slurm.submit.placement import AtLimit, Placement

NOW = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)
ROOM = 16  # GPUs of the machine, and of the partition
EXECUTORS_OWN = re.compile(
    r"PET_|TORCH_|POD_IP|HOME$|USER$|RIGHTSIZER_(ATTEMPT|METRICS_|RENDEZVOUS_|RESTART_|RUN_DIRECTORY)"
)
"""Variables for the rendezvous, ports, failure counts and the user, which every executor sets its own way."""

SPEC = {
    "model": {"dimensions": {"layers": 8, "hidden": 256, "heads": 8, "vocab": 512}},
    "workload": {"tokens": "100M", "sequenceLength": 128, "globalBatchSequences": 64},
    "resources": {"minGPUs": 1, "maxGPUs": 16},
}
DDP = {"framework": "ddp", "command": ["train.py", "--epochs", "one"]}
CUSTOM = {"framework": "custom", "command": ["python", "-m", "trainer"]}
CKPT = {"path": "/ckpt", "interval": "30m", "grace": "90s"}


def scenario(
    launch,
    layout,
    *,
    argv,
    elastic,
    interval_s=None,
    grace_s=30.0,
    flags="",
    env=None,
    gpus_per_node=1,
    **spec,
):
    return SimpleNamespace(
        launch=launch, layout=layout, argv=argv, elastic=elastic, interval_s=interval_s,
        grace_s=grace_s, flags=flags, env=env or {},
        gpus_per_node=gpus_per_node, spec=spec,
    )  # fmt: skip


def observed(*command):
    return ["--module", "rightsizer_launch.stacks.observe", *command]


SCENARIOS = {
    "ddp": scenario(
        DDP | {"checkpoint": CKPT}, Layout(dp=4, micro_batch=4, micro_batches=4),
        argv=["train.py", "--epochs", "one"], elastic=(1, 16), interval_s=1800.0, grace_s=90.0,
    ),
    "automatic interval": scenario(
        DDP | {"checkpoint": {"path": "/ckpt"}}, Layout(dp=4, micro_batch=4, micro_batches=4),
        argv=["train.py", "--epochs", "one"], elastic=(1, 16), interval_s=1234.0, grace_s=120.0,
    ),
    "no checkpoint path": scenario(
        DDP | {"args": ["--save-every", "{checkpoint.intervalSteps}", "--to={checkpoint.path}"]},
        Layout(dp=4, micro_batch=4, micro_batches=4),
        argv=["train.py", "--epochs", "one", "--save-every", "617", "--to="], elastic=(1, 16),
    ),
    "fixed gpus": scenario(
        DDP, Layout(dp=4, micro_batch=4, micro_batches=4), argv=["train.py", "--epochs", "one"],
        elastic=(1, 16), resources={"gpus": 4, "maxGPUs": 16},
    ),
    "elastic limits": scenario(
        DDP, Layout(dp=4, micro_batch=4, micro_batches=4), argv=["train.py", "--epochs", "one"],
        elastic=(2, 6), elasticity={"mode": "Auto", "minGPUs": 2, "maxGPUs": 6},
    ),
    "elastic nodes of 8": scenario(
        DDP, Layout(dp=8, micro_batch=4, micro_batches=2), argv=["train.py", "--epochs", "one"],
        elastic=(8, 16), gpus_per_node=8, elasticity={"mode": "Auto", "minGPUs": 3},
    ),
    "elasticity off": scenario(
        DDP, Layout(dp=4, micro_batch=4, micro_batches=4), argv=["train.py", "--epochs", "one"],
        elastic=(4, 4), elasticity={"mode": "Off"},
    ),
    "sharded in groups": scenario(
        CUSTOM, Layout(dp=8, sharding=Sharding.HSDP, shard_group=4, micro_batch=4, micro_batches=2),
        argv=["--module", "trainer"], elastic=(8, 8), gpus_per_node=4,
    ),
    "torchtitan FSDP": scenario(
        {"framework": "torchtitan", "command": ["-m", "torchtitan.train"]},
        Layout(dp=8, sharding=Sharding.ZERO3, micro_batch=4, micro_batches=2),
        argv=observed("torchtitan", "-m", "torchtitan.train"),
        flags="--parallelism.data_parallel_shard_degree 8", elastic=(8, 8), gpus_per_node=8,
    ),
    "megatron TP and PP": scenario(
        {"framework": "megatron", "command": ["pretrain_gpt.py"], "checkpoint": CKPT},
        Layout(dp=2, tp=2, pp=2, micro_batch=4, micro_batches=8),
        argv=observed("megatron", "pretrain_gpt.py"), flags="--pipeline-model-parallel-size 2",
        elastic=(8, 8), interval_s=1800.0, grace_s=90.0, gpus_per_node=8,
    ),
    "megatron data parallel": scenario(
        {"framework": "megatron", "command": ["pretrain_gpt.py"]},
        Layout(dp=4, micro_batch=4, micro_batches=4),
        argv=observed("megatron", "pretrain_gpt.py"),
        elastic=(4, 4),
    ),
    "deepspeed": scenario(
        {"framework": "deepspeed", "command": ["train.py"]},
        Layout(dp=4, sharding=Sharding.ZERO3, micro_batch=4, micro_batches=4),
        argv=observed("deepspeed", "train.py", "--deepspeed", "--deepspeed_config", "FILES/deepspeed.json"),
        elastic=(4, 4),
    ),
    "placeholders of the layout": scenario(
        CUSTOM | {"args": ["--tp={layout.tp}", "--name={plan.name}", "{{layout.dp}}"], "checkpoint": CKPT},
        Layout(dp=4, micro_batch=4, micro_batches=4),
        argv=["--module", "trainer", "--tp=1", "--name=demo", "{layout.dp}"], elastic=(1, 16),
        interval_s=1800.0, grace_s=90.0,
    ),
    "placeholders of the size": scenario(
        {"framework": "megatron", "command": ["run.sh", "{layout.dp}"]},
        Layout(dp=4, micro_batch=4, micro_batches=4),
        argv=observed("megatron", "run.sh", "4"), elastic=(4, 4),
    ),
    "placeholders of a framework that is sized only": scenario(
        {"framework": "NeMo", "command": ["train.py", "--tp={layout.tp}"]},
        Layout(dp=4, micro_batch=4, micro_batches=4), argv=observed("nemo", "train.py", "--tp=1"),
        elastic=(4, 4),
    ),
    "variables": scenario(
        DDP | {"env": [{"name": "HF_HOME", "value": "/c"}, {"name": "PYTHONUNBUFFERED", "value": "0"},
                       {"name": "EMPTY"}]},
        Layout(dp=4, micro_batch=4, micro_batches=4), argv=["train.py", "--epochs", "one"], elastic=(1, 16),
        env={"HF_HOME": "/c", "PYTHONUNBUFFERED": "0", "EMPTY": ""},
    ),
}  # fmt: skip


@functools.cache
def any_answer():
    return size(sizing.resolve(plan_of(DDP)).request(clusters=(lookup.cluster("H100-SXM5-80GB"),)))


def plan_of(launch, **spec):
    document = {
        "apiVersion": "rightsizer.dev/v1alpha1",
        "kind": "TrainingPlan",
        "metadata": {"name": "demo", "namespace": "team"},
        "spec": SPEC | spec | {"launch": launch | {"image": "train:1"}},
    }
    return loads(yaml.safe_dump(document), name="plan")


def option_of(layout):
    return replace(
        any_answer().option, layout=layout, gpus=layout.gpus, global_batch_sequences=64, step_s=2.0,
        checkpoint_interval_s=1234.4,
    )  # fmt: skip


def locally(plan, option, _gpus_per_node, directory):
    machine = Machine(
        clusters=(lookup.cluster("H100-SXM5-80GB", max_gpus=ROOM),),
        cuda=True,
        threads_per_worker=1,
        description="",
    )
    spec = job_spec(plan, machine, option, RunDirectory(path=directory), Path("/home"), attempt=1)
    return SimpleNamespace(
        argv=program_arguments(spec.program),
        environment=dict(spec.environment),
        fewest=spec.min_workers,
        files={path.name: path.read_text() for path in directory.iterdir()},
        grace_s=spec.grace_s,
    )


def by_the_operator(plan, option, gpus_per_node, _directory):
    report = {
        "gpus": option.gpus,
        "nodes": option.gpus // gpus_per_node,
        "gpuType": "H100-SXM5-80GB",
        "layout": layout_values(option.layout),
        "globalBatchSequences": option.global_batch_sequences,
        "stepSeconds": option.step_s,
        "finishSeconds": option.step_s,
        "checkpointIntervalSeconds": option.checkpoint_interval_s,
    }
    snapshot = Snapshot(plan={"metadata": {"uid": "uid-1"}}, inventory=Inventory(), now=NOW)
    persisted = PersistedStatus(
        sized=SizedPlan.of(report), attempt=AttemptRecord(number=1, gpus=option.gpus, job_name="a")
    )
    launch = with_launch(
        ReconcileState(snapshot=snapshot, resolved=resolve(plan), persisted=persisted)
    ).launch
    job, files = objects.job(launch), objects.settings_map(launch)
    pod = job["spec"]["template"]["spec"]
    trainer = pod["containers"][0]
    environment = {variable["name"]: variable.get("value", "") for variable in trainer["env"]}
    fewest, most = (int(nodes) * launch.gpus_per_pod for nodes in environment["PET_NNODES"].split(":"))
    return SimpleNamespace(
        argv=tuple(trainer["args"]),
        environment=environment,
        fewest=fewest,
        most=most,
        in_place=job["metadata"]["annotations"][names.ELASTIC] == "true",
        files=files["data"] if files else {},
        grace_s=float(environment["PET_SHUTDOWN_TIMEOUT"]),
    )


def by_slurm(plan, option, gpus_per_node, directory):
    pool = Pool(
        partition="gpu", gres="h100", gpu="H100-SXM5-80GB", node_gpus=gpus_per_node, cores=8,
        nodes=ROOM // gpus_per_node, free_nodes=1, free_gpus=gpus_per_node,
    )  # fmt: skip
    fitted = Placement(
        plan=plan, sized=replace(any_answer(), option=option), pool=pool, nodes=option.gpus // gpus_per_node,
        node_gpus=gpus_per_node, cores=8, time_s=600.0, at_limit=AtLimit.FITS, waits=False,
    )  # fmt: skip
    place = BatchSettings(run=str(directory), home="/home", plan="/home/plan.yaml")
    worker = worker_of(fitted, place)
    text = script(fitted, worker, place)
    exports = text[text.index("\nexport ") : text.index("\nrestart=")]
    command = text.partition(" -m rightsizer_launch.worker.entrypoint ")[2].partition(" &\n")[0]
    environment = dict(w.split("=", 1) for w in shlex.split(exports) if re.match(r"[A-Z_]+=", w))
    fewest, most = (nodes * gpus_per_node for nodes in elastic_nodes(fitted, worker))
    assert f"\nfewest={fewest // gpus_per_node}\n" in text
    return SimpleNamespace(
        argv=tuple(shlex.split(command)),
        environment=environment,
        fewest=fewest,
        most=most,
        in_place=worker.elastic.in_place,
        files=dict(worker.files),
        grace_s=float(environment["PET_SHUTDOWN_TIMEOUT"]),
    )


def started(case, directory):
    """Each executor's command, with equal directories for the framework's files."""
    plan, option = plan_of(case.launch, **case.spec), option_of(case.layout)
    workers = [
        executor(plan, option, case.gpus_per_node, directory)
        for executor in (locally, by_the_operator, by_slurm)
    ]
    for worker, files in zip(workers, (str(directory), "/etc/rightsizer", str(directory)), strict=True):
        worker.argv = [argument.replace(files, "FILES") for argument in worker.argv]
    return workers


def shared(environment):
    return {name: value for name, value in environment.items() if not EXECUTORS_OWN.match(name)}


@pytest.mark.parametrize("case", SCENARIOS.values(), ids=SCENARIOS)
def test_the_same_arguments_files_and_environment(case, tmp_path):
    local, operator, slurm = started(case, tmp_path)
    assert local.argv == operator.argv == slurm.argv
    assert local.argv[: len(case.argv)] == case.argv
    assert case.flags in " ".join(local.argv)
    assert local.files == operator.files == slurm.files
    assert shared(local.environment) == shared(operator.environment) == shared(slurm.environment)
    assert case.env.items() <= local.environment.items()


@pytest.mark.parametrize("case", SCENARIOS.values(), ids=SCENARIOS)
def test_the_same_checkpoint_interval_and_grace(case, tmp_path):
    workers = started(case, tmp_path)
    intervals = {worker.environment.get("RIGHTSIZER_CHECKPOINT_INTERVAL_S") for worker in workers}
    assert intervals == {None if case.interval_s is None else f"{case.interval_s:g}"}
    assert {worker.grace_s for worker in workers} == {case.grace_s}


@pytest.mark.parametrize("case", SCENARIOS.values(), ids=SCENARIOS)
def test_the_same_elastic_range(case, tmp_path):
    local, operator, slurm = started(case, tmp_path)
    fewest, most = case.elastic
    plan = plan_of(case.launch, **case.spec)
    whole_nodes = elastic_range(plan, case.layout, room_gpus=ROOM)
    assert local.fewest == whole_nodes.fewest  # one worker an agent: no node to fill
    assert (operator.fewest, operator.most) == (slurm.fewest, slurm.most) == (fewest, most)
    assert operator.in_place == slurm.in_place == whole_nodes.in_place


def test_only_workers_without_a_supervisor_count_their_failures(tmp_path):
    local, operator, slurm = started(SCENARIOS["ddp"], tmp_path)
    limits = [worker.environment.get("RIGHTSIZER_RESTART_LIMIT") for worker in (local, operator, slurm)]
    assert limits == [None, "10", "10"]


def test_an_automatic_interval_is_never_shorter_than_ten_seconds(tmp_path):
    plan = plan_of(DDP | {"checkpoint": {"path": "/ckpt"}})
    option = replace(option_of(Layout(dp=4, micro_batch=4, micro_batches=4)), checkpoint_interval_s=3.2)
    for executor in (locally, by_the_operator, by_slurm):
        assert executor(plan, option, 1, tmp_path).environment["RIGHTSIZER_CHECKPOINT_INTERVAL_S"] == "10"


def test_a_relative_checkpoint_path_starts_where_it_outlives_the_workers(tmp_path):
    plan = plan_of(DDP | {"checkpoint": {"path": "saves"}})
    option = option_of(Layout(dp=4, micro_batch=4, micro_batches=4))
    paths = [
        executor(plan, option, 1, tmp_path).environment["RIGHTSIZER_CHECKPOINT_PATH"]
        for executor in (locally, by_the_operator, by_slurm)
    ]
    assert paths == [f"{tmp_path}/saves", "saves", f"{tmp_path}/saves"]


def test_a_size_is_what_the_engine_chose():
    option = option_of(Layout(dp=4))
    assert LaunchSize.of(option) == LaunchSize(
        layout=Layout(dp=4), batch_sequences=64, step_s=2.0, checkpoint_interval_s=1234.4
    )

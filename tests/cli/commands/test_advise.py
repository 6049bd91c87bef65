"""`rightsizer advise`: a job's GPUs, its rate from a log, and the policy's advice; nothing is changed."""

import json
import subprocess

import pytest

from rightsizer_cli.commands.advise.jobs import ExistingJob, kubernetes_job, slurm_job
from rightsizer_cli.commands.advise.logs import rate_of
from rightsizer_cli.kubectl_client import Client, Where
from rightsizer_cli.main import execute
from rightsizer_engine.errors import InputError
from rightsizer_slurm.cluster.jobs import SlurmJob
from rightsizer_slurm.cluster.snapshot import Partition, SlurmCluster, SlurmNode

MEGATRON = "iteration {n}/100 | elapsed time per iteration (ms): {ms} | global batch size: 512 |"
JOB = [
    "advise",
    "--model",
    "llama-3.1-8b",
    "--tokens",
    "100B",
    "--gpus",
    "64",
    "--gpu",
    "H100",
    "--framework",
    "megatron",
]


@pytest.mark.parametrize(
    ("lines", "tokens_per_s", "step"),
    [
        (
            [MEGATRON.format(n=n, ms=ms) for n, ms in ((10, 9000.0), (20, 8000.0), (30, 8000.0))],
            524_288.0,
            30,
        ),
        (["step: 10  loss: 7.1  memory: 50GiB  tps: 5,000  mfu: 40%"] * 3, 40_000.0, 10),
        (["step 7 | tok/s/gpu 1,000"] * 3, 8_000.0, 7),
        (["step 00100/21400 | loss 3.1 | dt: 400.00ms | tok/sec: 1,048,576"] * 3, 1_048_576.0, 100),
        (["iter 50: loss 3.2, time: 1s, dt: 4194.304 ms"] * 2, 1e6, 50),
        ([" 10%|# | 100/1000 [06:59<1:02:54,  4.19s/it]"] * 2, 4_194_304 / 4.19, None),
        ([" 10%|# | 100/1000 [00:50<07:30,  2.00it/s]"] * 2, 8_388_608.0, None),
        (["tokens_per_second: 1.5e6"] * 2, 1.5e6, None),
    ],
)
def test_the_rate_is_read_from_the_stacks_own_lines(lines, tokens_per_s, step):
    rate = rate_of("\n".join(["starting", *lines, "saved"]), batch_tokens=4_194_304, gpus=8)
    assert rate.tokens_per_s == pytest.approx(tokens_per_s)
    assert rate.step == step


@pytest.mark.parametrize(
    "text",
    [
        *("", "hello", "elapsed time per iteration (ms): nan", "tok/s: 0", "tok/s: 1e-9", "tok/s: 1e16"),
        *(f"tps: {'9' * 400}", "dt: 1e-323 ms", f", {'9' * 400}s/it"),
    ],
    ids=lambda text: text[:20],
)
def test_a_log_without_a_rate_is_refused_with_the_expected_form(text):
    with pytest.raises(InputError, match="Megatron-LM's iteration time"):
        rate_of(text, batch_tokens=1.0, gpus=1)


def test_a_step_with_too_many_digits_is_none():
    assert rate_of(f"step: {'9' * 5000} tps: 1.0", batch_tokens=1.0, gpus=1).step is None


def advice(capsys, *arguments):
    assert execute([*JOB, *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_job_far_ahead_of_its_deadline_could_do_with_fewer_gpus(capsys):
    found = advice(capsys, "--deadline", "10d", "--tokens-per-second", "400000", "--tokens-done", "1B")
    assert found["action"] in {
        "shrink",
        "flag",
    }  # flag: a restart costs more than it saves
    assert "32 GPUs" in found["reason"]
    assert found["tokensLeft"] == 99e9
    present = next(size for size in found["sizes"] if size["gpus"] == 64)
    assert present["tokensPerSecond"] == pytest.approx(400_000)


def test_a_late_job_needs_more_gpus(capsys):
    found = advice(capsys, "--deadline", "50h", "--tokens-per-second", "400000", "--tokens-done", "1B")
    assert found["action"] == "grow"
    assert found["gpus"] > 64


def test_a_log_gives_the_rate_and_the_model(tmp_path, capsys):
    log = tmp_path / "train.log"
    log.write_text("\n".join(MEGATRON.format(n=n, ms=8000.0) for n in (500, 1000)))
    found = advice(
        capsys, "--deadline", "70h", "--log", str(log), "--global-batch", "4M", "--sequence-length", "8192"
    )
    assert found["measured"]["tokens_done"] == pytest.approx(1000 * 488 * 8192)
    assert found["assumed"][-1] == "tokens trained so far: step 1000 of the log"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (["--tokens-per-second", "4e5", "--tokens-done", "200B"], "--tokens-done"),
        (["--tokens-per-second", "4e5"], "--tokens-done"),
        ([], "--log"),
        (["--log", "nowhere.log"], "--log"),
        (["--kubernetes", "deployment/x"], "--kubernetes"),
        (["--kubernetes", "job/--all"], "--kubernetes"),
    ],
)
def test_what_lacks_is_one_line(arguments, field, capsys):
    assert execute([*JOB, *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {field}: ")
    assert err.count("\n") == 1


def pod(node, gpus, phase="Running"):
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}}
    return {
        "metadata": {"name": f"p-{node}"},
        "spec": {"nodeName": node, "containers": [{"resources": limits}]},
        "status": {"phase": phase, "startTime": "2026-11-23T08:00:00Z"},
    }


def client_of(job, pods):
    names = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    nodes = [{"metadata": {"name": name, "labels": names}} for name in ("a", "b")]

    def run(arguments):
        kind = next(w for w in arguments[arguments.index("get") + 1 :] if not w.startswith("-"))
        answer = {"pods": {"items": pods}, "nodes": {"items": nodes}}.get(kind, job)
        return subprocess.CompletedProcess(arguments, 0, json.dumps(answer), "")

    return Client(where=Where(), run=run)


def test_a_kubernetes_job_is_counted_by_its_running_pods():
    said = "rightsizer: model=llama-3.1-8b tokens=100B"
    job = {"metadata": {"name": "x", "annotations": {"rightsizer.dev/comment": said}}}
    found = kubernetes_job(client_of(job, [pod("a", 8), pod("b", 8), pod("b", 8, "Failed")]), "PyTorchJob/x")
    assert (found.gpus, found.gpu, found.gpus_per_node) == (16, "H100-SXM5-80GB", 8)
    assert found.plan == said
    with pytest.raises(InputError, match="no running pod with GPUs"):
        kubernetes_job(client_of(job, [pod("a", 8, "Pending")]), "job/x")


class Commands:
    """Slurm's output about one job."""

    def __init__(self, job):
        self._job = job

    def job(self, _job_id):
        return self._job

    def cluster(self):
        return SLURM


SLURM = SlurmCluster(
    partitions=(Partition(name="gpu", nodes=("n1", "n2")),),
    nodes=(SlurmNode(name="n1", gpu="h100", gpus=8), SlurmNode(name="n2", gpu="h100", gpus=8)),
)


def test_a_slurm_job_has_its_type_from_its_nodes():
    job = SlurmJob(job_id=7, states=("RUNNING",), partition="gpu", nodes=2, gpus=16, started_s=1.0)
    found = slurm_job(7, Commands(job))
    assert found == ExistingJob(
        name="Slurm job 7", gpus=16, gpu="H100-SXM5-80GB", gpus_per_node=8, started_s=1.0, plan=""
    )
    for absent in (None, SlurmJob(job_id=7, states=("PENDING",), gpus=8)):
        with pytest.raises(InputError, match="not a running job"):
            slurm_job(7, Commands(absent))

"""A plan under GitOps tools: the kstatus in Helm 4's --wait, and Argo CD's health check."""

import subprocess
import sys
from pathlib import Path

import lupa.lua51
import pytest
import yaml
from charts import helm_at
from planrun import IDLE

pytestmark = pytest.mark.kubernetes

HEALTH = Path(__file__).resolve().parents[3] / "deploy" / "argocd" / "health.lua"


@pytest.fixture
def install(cluster, tmp_path):
    """install(run): how `helm install --wait` of a chart with the plan ends."""
    helm = helm_at(cluster)

    def ended(run):
        (tmp_path / "templates").mkdir()
        (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: plan, version: 0.1.0}")
        (tmp_path / "templates/plan.yaml").write_text(yaml.safe_dump_all([run.claim, run.document]))
        where = f"--namespace={run.namespace}"
        return helm("install", "plan", tmp_path, where, "--wait", "--timeout=300s")

    return ended


def health(run):
    """The verdict on the plan as the API server has it."""
    lua = lupa.lua51.LuaRuntime()
    found = run.cluster.api.get("tp", run.name, namespace=run.namespace)
    lua.globals().obj = lua.table_from(found, recursive=True)
    return lua.execute(HEALTH.read_text())["status"]


def test_helm_waits_until_a_plan_runs(install, plan):
    run = plan(launch=IDLE)
    done = install(run)
    assert done.returncode == 0, done.stderr
    assert run.state == "Running"
    assert health(run) == "Healthy"
    run.patch(suspend=True)
    run.until("Suspended")  # which the operator may say before it has sized the new spec
    run.cluster.wait("its health", lambda: health(run) == "Suspended")


def test_helm_s_wait_ends_at_once_for_a_plan_that_somebody_must_change(install, plan):
    run = plan(resources={"gpuTypes": ["H1000"], "gpusPerNode": 1})
    done = install(run)
    assert done.returncode != 0
    assert "Failed" in done.stderr
    assert "context deadline exceeded" not in done.stderr
    assert health(run) == "Degraded"


def test_a_plan_that_no_operator_has_seen_is_not_ready(cluster, plan):
    run = plan()
    text = yaml.safe_dump(run.document)
    stored = cluster.kubectl(
        *("create", "--dry-run=server", "--output=yaml", f"--namespace={run.namespace}", "--filename=-"),
        text=text,
    )
    assert yaml.safe_load(stored)["status"] == {"observedGeneration": -1}


@pytest.mark.parametrize(
    "options",
    [
        "--model llama-3-8b --gpu p5.48xlarge --nodes 2 --method lora --lora-rank 8 --tokens 100M",
        "--model mixtral-8x7b --gpu H100 --method qlora --quantized-bits 8 --examples 10k --seq-len 4096",
        "--model llama-3-70b --gpu H100,A100-SXM4-80GB --deadline 30d --budget 5k --price 2.5 --tokens 1B",
    ],
)
def test_the_output_of_plan_applies_unchanged(cluster, operator, namespace, options):
    argv = [str(Path(sys.executable).with_name("rightsizer")), "plan", *options.split(), "--output=yaml"]
    printed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    strictly = ("--dry-run=server", "--validate=strict", f"--namespace={namespace}", "--filename=-")
    assert "created" in cluster.kubectl("create", *strictly, text=printed)

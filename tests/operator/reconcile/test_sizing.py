import datetime as dt
import re
from dataclasses import replace

import pytest

from rightsizer_api import validate
from rightsizer_api.sizing import resolve
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import Plan
from rightsizer_operator.reconcile.reconcile import reconcile
from rightsizer_operator.reconcile.size import cluster_request, decide, scaling_of
from rightsizer_operator.reconcile.sizing_response import NotSizedYetError, RunningAttempt
from rightsizer_operator.values.actions import PatchJob, PatchStatus, SearchSize
from rightsizer_operator.values.inventory import Inventory
from rightsizer_operator.values.kueue import Queue
from rightsizer_operator.values.nodes import ClusterNode, Taint


def test_a_plan_without_gpus_lists_the_available_types(fake_cluster):
    waiting = fake_cluster(nodes=0).settle()
    assert (waiting.state, waiting.jobs) == ("NoSuchGPUs", {})
    assert "no GPU nodes" in waiting.condition("Sized")["message"]


def test_a_plan_that_exceeds_the_cluster_names_the_lack_and_starts_when_it_is_gone(fake_cluster):
    waiting = fake_cluster({"resources": {"gpus": 4, "maxGPUs": 4}}, nodes=1, gpus=2).settle()
    assert waiting.state == "InsufficientGPUs"
    assert "needs 4 x H100-SXM5-80GB" in waiting.condition("Sized")["message"]
    waiting.nodes.append(ClusterNode(name="new", product="NVIDIA-H100-80GB-HBM3", gpus=2))
    assert list(waiting.settle().jobs) == ["demo-a1"]


@pytest.mark.parametrize("fault", [{"ready": False}, {"cordoned": True}], ids=["not-ready", "cordoned"])
def test_nodes_that_take_no_pods_do_not_count(fake_cluster, fault):
    waiting = fake_cluster(nodes=1)
    waiting.change_node(0, **fault)
    assert waiting.settle().state == "NoSuchGPUs"
    assert "cordoned or not-ready" in waiting.condition("Sized")["message"]


def test_a_plan_waits_while_others_hold_the_gpus_and_holds_none_itself(fake_cluster):
    waiting = fake_cluster(nodes=1, gpus=2)
    node = waiting.nodes[0]
    waiting.inventory = Inventory(nodes=(node,), held={"n0": 1})
    waiting.settle()
    assert (waiting.state, waiting.jobs, waiting.children) == ("WaitingForGPUs", {}, set())
    message = waiting.condition("Admitted")["message"]
    assert message == "needs 2 x H100-SXM5-80GB in pods of 1; 1 free: node n0 has 1 of 2 GPUs free"
    waiting.inventory = Inventory(nodes=(node,))
    assert list(waiting.settle().jobs) == ["demo-a1"]


def test_a_queued_plan_is_launched_at_once_and_waits_in_its_queue(fake_cluster):
    queued = fake_cluster(nodes=1, gpus=2)
    queued.plan["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    queued.queue = Queue(name="team")
    queued.inventory = Inventory(nodes=tuple(queued.nodes), held={"n0": 2})
    queued.settle()
    assert queued.job()["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert (queued.settle().state, queued.job()["spec"]["suspend"]) == ("Queued", True)


def test_a_quota_bounds_the_plan_and_is_named(fake_cluster):
    bounded = fake_cluster()
    bounded.quota = 1
    assert bounded.settle().state == "InsufficientGPUs"
    assert "quotas leave 1" in bounded.condition("Sized")["message"]


STAGED = {
    "workload": {"tokens": "100B", "sequenceLength": 1024, "globalBatchSequences": 96, "precision": "bf16"},
    "model": {"dimensions": {"layers": 16, "hidden": 2048, "ffnHidden": 8192, "heads": 16, "vocab": 32000}},
    "resources": {"gpus": None, "maxGPUs": 4},
    "layout": {"microBatch": 4},
}


@pytest.fixture
def staged(fake_cluster, plan_within, opens):
    """A plan that opens with one GPU and a reserve of more than two; of two where quotas leave two."""
    cluster = fake_cluster(STAGED)
    request = cluster_request(
        validate(cluster.plan), inventory=Inventory(nodes=tuple(cluster.nodes)), created=NOW
    )

    def wanted(plan):
        less = size(replace(plan.request, max_gpus=2), compared=False)
        return opens(1)(plan) and plan.staging.reserve_gpus > 2 and isinstance(less, Plan) and opens(1)(less)

    return cluster.edit(deadline={"finishWithin": f"{plan_within(request, wanted).request.deadline_s:.0f}s"})


def test_a_staged_plan_s_job_names_its_reserve_for_queues_and_administrators(staged):
    reserve = staged.settle().plan["status"]["sizing"]["opening"]["reserveGPUs"]
    assert staged.job()["metadata"]["annotations"]["rightsizer.dev/reserve-gpus"] == str(reserve)


def test_a_quota_below_the_reserve_is_named(staged):
    staged.quota = 2
    sized = staged.settle().condition("Sized")["message"]
    assert re.search("quotas leave 2 GPUs of a reserve of [34]", sized)
    assert staged.plan["status"]["sizing"]["opening"]["reserveGPUs"] == 2


def test_a_reserve_beyond_the_queue_s_own_quota_is_named_as_borrowed(staged):
    staged.queue = Queue(name="team", gpus=8, nominal_gpus=2)
    assert "beyond 2 GPUs, its queue's own quota" in staged.settle().condition("Sized")["message"]


def test_a_plan_that_no_number_of_gpus_meets_is_not_accepted(fake_cluster):
    hopeless = fake_cluster({"deadline": {"finishWithin": "1s"}}).settle()
    assert (hopeless.condition("Accepted")["status"], hopeless.state) == ("False", "NoPlan")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"resources": {"gpuTypes": ["H1000"]}}, "spec.resources.gpuTypes"),
        ({"launch": {"command": []}}, "spec.launch.command"),
        ({"launch": {"image": None}}, "spec.launch.image"),
        ({"launch": {"command": ["torchrun", "x.py"]}}, "launch.command"),
        ({"launch": {"podTemplate": {"spec": {"subdomain": "x"}}}}, "podTemplate.spec.subdomain"),
        (
            {
                "launch": {
                    "podTemplate": {
                        "spec": {
                            "containers": [{"name": "log", "env": [{"name": "PET_NNODES", "value": "9"}]}]
                        }
                    }
                }
            },
            "containers[0].env[0].name",
        ),
        ({"launch": {"podTemplate": {"spec": {"nodeSelector": "x"}}}}, "podTemplate.spec.nodeSelector"),
        ({"launch": {"podTemplate": {"spec": {"volumes": [{}]}}}}, "podTemplate.spec.volumes[0].name"),
    ],
    ids=["gpu", "no-command", "no-image", "torchrun", "subdomain", "reserved-env", "type", "no-name"],
)
def test_an_invalid_plan_names_the_field_and_creates_nothing(fake_cluster, change, field):
    wrong = fake_cluster(change).settle()
    assert (wrong.state, wrong.jobs, wrong.children) == ("Invalid", {}, set())
    assert field in wrong.condition("Accepted")["message"]
    assert wrong.events[0].warning


def test_a_wrong_plan_that_is_put_right_starts(fake_cluster):
    fixed = fake_cluster({"launch": {"command": []}}).settle().edit(launch={"command": ["train.py"]}).settle()
    assert (list(fixed.jobs), fixed.state) == (["demo-a1"], "Starting")


@pytest.mark.parametrize(
    ("gpus", "pods", "each"), [(4, 1, 4), (8, 1, 8), (16, 2, 8)], ids=["part", "node", "nodes"]
)
def test_a_pod_is_a_node_or_the_part_of_it_that_the_job_needs(fake_cluster, gpus, pods, each):
    batch = {"workload": {"globalBatchSequences": 48}}
    big = fake_cluster(batch | {"resources": {"gpus": gpus, "maxGPUs": 16, "gpusPerNode": None}}).settle()
    spec = big.job()["spec"]
    limits = spec["template"]["spec"]["containers"][0]["resources"]["limits"]
    assert (spec["parallelism"], limits) == (pods, {"nvidia.com/gpu": each})


NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
H100 = "H100-SXM5-80GB"
LARGE = {
    "model": {"dimensions": None, "name": "Llama 3.1 8B"},
    "workload": {"tokens": "1B", "sequenceLength": 2048, "globalBatchSequences": 32, "precision": "bf16"},
    "deadline": None,
    "resources": {"gpus": None, "maxGPUs": 8, "gpusPerNode": None},
    "layout": None,
    "launch": {"framework": "torchtitan"},
}


@pytest.mark.parametrize(("held", "gpus"), [(0, 8), (4, 4)], ids=["all-free", "only-its-own"])
def test_a_running_plan_is_sized_on_the_free_gpus_and_its_own(fake_cluster, held, gpus):
    cluster = fake_cluster(LARGE | {"objective": "time"}, nodes=1)
    result = decide(
        resolve(validate(cluster.plan)),
        inventory=Inventory(nodes=tuple(cluster.nodes), held={"n0": held}),
        now=NOW,
        created=NOW,
        running=RunningAttempt(layout=Layout(dp=4), batch=32, elastic=False, gpu_type=H100),
    )
    assert result.sized.gpus == gpus


def test_a_running_plan_s_other_sizes_lie_within_the_bounds_of_a_resize(fake_cluster):
    resources = LARGE["resources"] | {"minGPUs": 4, "maxGPUs": 4}
    cluster = fake_cluster(LARGE | {"resources": resources, "elasticity": {"minGPUs": 2}}, nodes=1)
    scaling = scaling_of(
        resolve(validate(cluster.plan)),
        RunningAttempt(layout=Layout(dp=4), batch=32, elastic=False, gpu_type=H100),
        inventory=Inventory(nodes=tuple(cluster.nodes)),
        created=NOW,
    )
    assert scaling is not None
    assert {size.gpus for size in scaling.sizes(gpus=4, tokens_per_s=1e4, steps=50)} == {2, 4}


def test_the_request_for_a_cluster_offers_all_its_gpus_free_or_not(fake_cluster):
    cluster = fake_cluster(LARGE, nodes=2)
    inventory = Inventory(nodes=tuple(cluster.nodes), held={"n0": 8, "n1": 7})
    (offered,) = cluster_request(validate(cluster.plan), inventory=inventory, created=NOW).clusters
    assert (offered.gpu.name, offered.max_gpus, offered.gpus_per_node) == (H100, 16, 8)


def test_a_request_for_a_cluster_without_the_plan_s_gpus_is_an_input_error(fake_cluster):
    plan = validate(fake_cluster(LARGE | {"resources": {"gpuTypes": ["A100"]}}).plan)
    with pytest.raises(InputError, match="none of them is usable here"):
        cluster_request(plan, inventory=Inventory(nodes=tuple(fake_cluster().nodes)), created=NOW)


PART = {"resources": {"gpus": 4, "maxGPUs": 8, "gpusPerNode": None}}
WHOLE = {"resources": {"gpus": 8, "maxGPUs": 8, "gpusPerNode": None}}


@pytest.mark.parametrize(
    ("change", "held", "state"),
    [
        (PART, {"n0": 1, "n1": 8, "n2": 8}, "Starting"),
        (WHOLE, {"n0": 7, "n1": 7, "n2": 7}, "WaitingForGPUs"),
        (WHOLE, {"n0": 7, "n1": 7}, "Starting"),
    ],
    ids=["in-a-part-of-a-node", "spread-over-nodes", "on-a-free-node"],
)
def test_a_plan_starts_if_its_pods_can_be_placed(fake_cluster, change, held, state):
    batch = {"workload": {"globalBatchSequences": 48}}
    cluster = fake_cluster(batch | change)
    cluster.inventory = Inventory(nodes=tuple(cluster.nodes), held=held)
    assert cluster.settle().state == state


def test_a_waiting_plan_lists_each_node_s_lack(fake_cluster):
    waiting = fake_cluster({"workload": {"globalBatchSequences": 48}} | WHOLE, nodes=12)
    waiting.change_node(1, taints=(Taint(key="team", value="nlp"),)).change_node(2, cordoned=True)
    held = {node.name: 7 for node in waiting.nodes}
    waiting.inventory = Inventory(nodes=tuple(waiting.nodes), held=held | {"n3": 6})
    message = waiting.settle().condition("Admitted")["message"]
    assert "pods of 8; 0 free: node n3 has 2 of 8 GPUs free; node n0 has 1 of 8 GPUs free" in message
    assert message.endswith("; 8 more nodes lack something")


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({"taints": (Taint(key="team", value="nlp"),)}, "node n0 has taint team=nlp:NoSchedule"),
        ({"ready": False}, "node n0 is not ready"),
        ({"gpus": 0}, "node n0 has no allocatable GPUs"),
    ],
    ids=["taint", "not-ready", "no-devices"],
)
def test_a_plan_without_usable_gpus_has_a_reason(fake_cluster, fault, words):
    waiting = fake_cluster(nodes=1).change_node(0, **fault).settle()
    assert waiting.state == "NoSuchGPUs"
    assert waiting.condition("Sized")["message"].endswith(words)


def unknown_yet(size_request):
    raise NotSizedYetError(size_request)


def test_a_running_plan_continues_while_its_new_size_is_searched(fake_cluster):
    running = fake_cluster().settle()
    running.job(ready=2)
    running.settle().edit(workload={"tokens": "20M"}, suspend=True)
    actions = reconcile(running.snapshot(), size=unknown_yet)
    assert [type(action) for action in actions if not isinstance(action, PatchStatus)] == [
        SearchSize,
        PatchJob,
    ]
    assert all(a.status["observedGeneration"] == 1 for a in actions if isinstance(a, PatchStatus))


def test_a_new_plan_writes_nothing_before_its_size(fake_cluster):
    assert [type(action) for action in reconcile(fake_cluster().snapshot(), size=unknown_yet)] == [SearchSize]


SLICE = "H100-SXM5-80GB-MIG-1g.10gb"


def test_a_plan_that_names_mig_slices_takes_one(fake_cluster):
    ask = {"resources": {"gpuTypes": [SLICE], "gpus": None, "minGPUs": None}}
    sliced = fake_cluster(ask, nodes=1, gpus=7)
    sliced.change_node(0, product="NVIDIA-H100-80GB-HBM3-MIG-1g.10gb")
    job = sliced.settle().job()
    assert job["spec"]["parallelism"] == 1
    assert SLICE in sliced.condition("Sized")["message"]
    sliced.edit(resources={"gpus": 2})
    assert not [action for action in sliced.decide() if isinstance(action, PatchJob)]

"""The plan that a probe runs: the fewest GPUs that tell, each doing what it would do in the plan."""

import json
from dataclasses import replace

import pytest

from rightsizer_api import loads, sizing
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.workload import Recompute
from rightsizer_engine.errors import InputError
from rightsizer_engine.search.size import size
from rightsizer_launch.running.probe import interval_ratio, no_steps, probe_of
from rightsizer_launch.running.probe_end import has_enough
from rightsizer_launch.running.probe_plan import ProbeRequest
from rightsizer_launch.worker.progress import Record

H100 = "H100-SXM5-80GB"


def manifest(**spec):
    document = {
        "apiVersion": "rightsizer.dev/v1alpha1",
        "kind": "TrainingPlan",
        "metadata": {"name": "pretrain", "namespace": "nlp"},
        "spec": {
            "model": {"name": "meta-llama/Llama-3.1-8B"},
            "workload": {"tokens": "100B"},
            "deadline": {"finishWithin": "72h"},
            "resources": {"gpuTypes": [H100]},
            "launch": {
                "framework": "torchtitan",
                "command": ["train.py"],
                "checkpoint": {"path": "/ckpt", "interval": "10m"},
            },
        }
        | spec,
    }
    return loads(json.dumps(document))


def probed(plan=None, *, room=4096, limit_s=300.0, clusters=None, gpus=None, **options):
    plan = plan or manifest()
    request = sizing.resolve(plan).request()
    target = size(request, compared=False).option
    here = clusters or (lookup.cluster(H100, max_gpus=room),)
    wanted = ProbeRequest(
        plan=plan, target=target, request=request, clusters=here, limit_s=limit_s, **options
    )
    return target, probe_of(wanted, gpus=gpus)


def test_a_large_plan_is_probed_on_two_nodes_with_the_work_of_each_gpu_unchanged():
    target, probe = probed()
    found, wanted = probe.option.layout, target.layout
    assert probe.option.gpus == 16 < target.gpus
    for name in ("tp", "pp", "cp", "ep", "micro_batch", "sharding", "recompute", "offload"):
        assert getattr(found, name) == getattr(wanted, name), name
    assert probe.option.step_s < target.step_s, "fewer micro-batches, so that there are enough steps"
    assert 1.0 < probe.expected_ratio < probe.ratio == interval_ratio(target)


def test_the_probe_is_a_plan_of_its_own_that_every_executor_can_run(tmp_path):
    _, probe = probed(home=tmp_path, tag="-x")
    spec = probe.plan.spec
    assert probe.plan.metadata.name == "pretrain-probe-x"
    assert (spec.deadline, spec.budget, spec.resources.gpus) == (None, None, probe.option.gpus)
    assert spec.active_deadline == "300s"
    assert spec.launch.checkpoint.path == "/ckpt/rightsizer-probe-x", "never among the plan's own checkpoints"
    assert (spec.launch.restarts.limit, spec.launch.working_dir) == (0, f"{tmp_path}")
    answer = size(sizing.resolve(probe.plan).request(clusters=(lookup.cluster(H100),)), compared=False)
    assert answer.option.layout == probe.option.layout


@pytest.mark.parametrize(
    ("room", "gpus", "taken"),
    [(4096, None, {16}), (8, None, set(range(1, 9))), (4096, 32, {32})],
    ids=["two nodes", "one node is here", "asked for"],
)
def test_it_stays_within_the_available_and_the_requested_gpus(room, gpus, taken):
    _, probe = probed(room=room, gpus=gpus)
    assert probe.option.gpus in taken


def test_a_small_plan_is_probed_whole():
    plan = manifest(
        model={"name": "GPT-2 small"}, workload={"tokens": "1B"}, resources={"gpuTypes": [H100], "gpus": 1}
    )
    target, probe = probed(plan)
    assert probe.option.gpus == target.gpus == 1


@pytest.mark.parametrize(
    ("clusters", "words"),
    [
        ((lookup.cluster("A100-SXM4-80GB"),), "is not here"),
        ((lookup.cluster(H100, max_gpus=1),), "--gpus: 1: are too few"),
    ],
    ids=["another type", "too few"],
)
def test_gpus_without_counters_are_one_error(clusters, words):
    with pytest.raises(InputError, match=words):
        probed(clusters=clusters)


def test_more_gpus_than_there_are_is_one_error():
    with pytest.raises(InputError, match="there are 16 "):
        probed(room=16, gpus=32)


def test_gpus_that_hold_no_replica_are_refused():
    plan = manifest(layout={"tp": 8})
    with pytest.raises(InputError, match="multiple of 8"):
        probed(plan, gpus=4)


def test_a_replica_that_fits_only_recomputed_is_still_probed():
    plan = manifest(model={"name": "meta-llama/Llama-3.1-70B"}, workload={"tokens": "15T"})
    request = replace(sizing.resolve(plan).request(), deadline_s=60 * 86400.0)
    target = size(request, compared=False).option
    probe = probe_of(
        ProbeRequest(plan=plan, target=target, request=request, clusters=request.clusters, limit_s=300.0)
    )
    assert probe.option.gpus <= target.gpus // 2
    assert probe.option.layout.recompute in {Recompute.SELECTIVE, Recompute.FULL, target.layout.recompute}


def steps(count, scatter=0.0):
    return [
        Record(event="step", time=float(i), step=i, step_s=0.5 * (1 + scatter * (-1) ** i))
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("records", "enough"),
    [(steps(10), False), (steps(80), True), (steps(80, scatter=0.5), False), (steps(800, scatter=0.5), True)],
    ids=["few", "many", "noisy", "many noisy"],
)
def test_measuring_ends_when_more_steps_add_little(records, enough):
    assert has_enough(records, 1) is enough


@pytest.mark.parametrize("failed", [True, False])
def test_a_probe_without_steps_names_the_command_and_the_remedy(failed):
    _, probe = probed()
    error = no_steps(probe, failed=failed)
    assert (error.field, error.value) == ("spec.launch.command", "train.py")
    assert ("agent.step" in error.remedy) is not failed

import dataclasses
import datetime as dt
import re
import sys

import pytest

from rightsizer_api import sizing
from rightsizer_api.spec.resources import Deadline
from rightsizer_slurm.cluster.comment import parse, plan_of
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.submit.constraints import with_spec
from rightsizer_slurm.submit.protocol import SizingRequest, SizingVerdict
from rightsizer_slurm.submit.response import respond

LORA = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"
NOW = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def response_to(cluster, comment=LORA, site=SiteConfig(), **options):  # noqa: B008 (a frozen value)
    request = SizingRequest(comment=comment, **options)
    return respond(
        request, cluster=cluster, site=site, now=NOW, plan_of_file=lambda path: plan_of(parse(LORA))
    )


def test_a_size_sets_nodes_gres_tasks_time_and_never_tasks_per_node(cluster) -> None:
    response = response_to(cluster)
    assert response.verdict is SizingVerdict.OK
    assert (response.fields["min_nodes"], response.fields["max_nodes"], response.fields["num_tasks"]) == (
        1,
        1,
        1,
    )
    assert str(response.fields["gres"]).startswith("gpu:h100:")
    assert response.fields["time_limit"] > 15
    assert "ntasks_per_node" not in response.fields


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"partition": "a100"}, {"partition": "a100"}),
        ({"gres": "gres:gpu:a100:1"}, {"partition": "a100", "gres": "gpu:a100:1"}),
        ({"ntasks_per_node": 4, "num_tasks": 8}, {"num_tasks": 4, "min_cpus": 4}),
        ({"cpus_per_task": 3}, {"num_tasks": 1, "cpus_per_task": 3, "min_cpus": 3}),
        ({"tres_per_job": "gres:gpu:4"}, {"tres_per_job": ""}),
    ],
    ids=" ".join,
)
def test_what_the_user_wrote_bounds_the_size(cluster, options, fields) -> None:
    response = response_to(cluster, **options)
    assert {key: response.fields[key] for key in fields} == fields


def test_a_time_limit_of_the_users_own_stays(cluster) -> None:
    assert "time_limit" not in response_to(cluster, time_limit=1200).fields
    refused = response_to(cluster, time_limit=1)
    assert (refused.verdict, "[within a time limit of 1m]" in refused.say) == (SizingVerdict.REFUSE, True)


@pytest.mark.parametrize(
    ("tokens", "sized"), [("10B", True), ("1000000T", False)], ids=["hours", "ten thousand years"]
)
def test_no_time_limit_is_longer_than_slurm_counts(cluster, tokens, sized) -> None:
    """A limit is given in minutes; Slurm counts them, and their seconds, in 32 bits."""
    endless = tuple(dataclasses.replace(each, max_time_s=None) for each in cluster.partitions)
    comment = f"rightsizer: model=llama-3.1-8b method=lora tokens={tokens}"
    response = response_to(dataclasses.replace(cluster, partitions=endless), comment)
    assert (response.verdict is SizingVerdict.OK, response.verdict is SizingVerdict.REFUSE) == (
        sized,
        not sized,
    )
    assert response.fields.get("time_limit", 1) < 2**31 / 60


def test_nodes_that_are_away_are_waited_for(cluster) -> None:
    away = dataclasses.replace(cluster, nodes=tuple(dataclasses.replace(n, up=False) for n in cluster.nodes))
    response = response_to(away)
    assert (response.verdict, "waits until they are free" in response.say) == (SizingVerdict.OK, True)


def test_a_partition_whose_mode_is_off_is_not_chosen(cluster) -> None:
    assert response_to(cluster, site=SiteConfig(partitions={"h100": "off"})).fields["partition"] == "a100"


def test_a_plan_file_is_requested_by_its_path(cluster) -> None:
    assert response_to(cluster, comment="rightsizer: plan=/x.yaml").verdict is SizingVerdict.OK


@pytest.mark.parametrize(
    ("comment", "options", "message"),
    [
        (LORA + " gpu=L40S", {}, "has no partition for this job with L40S"),
        (LORA, {"partition": "nix"}, "is not a partition of this cluster"),
        (LORA + " min=16", {"tres_per_job": "gres:gpu:4"}, "is less than the 16 that the plan requires"),
        ("rightsizer: x=1", {}, "unknown key"),
    ],
)
def test_a_refusal_names_the_fault(cluster, comment, options, message) -> None:
    response = response_to(cluster, comment=comment, **options)
    assert response.verdict is SizingVerdict.REFUSE
    assert message in response.say


@pytest.mark.parametrize(
    ("gres", "names", "partition"),
    [
        ("weird", {}, None),
        ("weird", {"weird": "H100-SXM5-80GB"}, "h100"),
        ("", {"untyped": "H100-SXM5-80GB"}, "h100"),
        ("h100", {"h100": "none"}, None),
        ("1g.10gb", {}, None),
    ],
    ids=["unknown", "mapped", "untyped", "not for training", "slice"],
)
def test_gres_types_are_gpus_by_the_sites_map(cluster, gres, names, partition) -> None:
    nodes = tuple(dataclasses.replace(node, gpu=gres) for node in cluster.nodes if node.gpu == "h100")
    response = response_to(dataclasses.replace(cluster, nodes=nodes), site=SiteConfig(gpus=names))
    assert response.fields.get("partition") == partition


def test_a_refusal_names_the_partition_with_the_longest_time_limit(cluster) -> None:
    response = response_to(cluster, comment="rightsizer: model=llama-3.1-8b tokens=500B")
    assert response.verdict is SizingVerdict.REFUSE
    assert "32 H100-SXM5-80GB (4 nodes)" in response.say


def test_the_note_of_a_size_has_its_layout_and_price_and_fits_the_plugin(cluster) -> None:
    for comment in (LORA, "rightsizer: model=mixtral-8x7b tokens=2B deadline=72h"):
        note = str(response_to(cluster, comment).fields["admin_comment"])
        assert re.fullmatch(
            r"\[rightsizer/1 nodes=\d+ gpus=\d+ minutes=\d+ bound=\w+: [\w .=:,/+%@~-]*\]", note
        ), note
        assert len(note) <= 200
        assert ", done in " in note


LONG = "rightsizer: model=llama-3.1-8b tokens=10B"
SAVES = f"{LONG} launch.checkpoint.path=/ckpt"


@pytest.mark.parametrize(
    ("comment", "options", "said"),
    [
        (SAVES, {"time_limit": 60, "max_nodes": 1, "requeues": 1}, "for 1h, requeued by its script at each"),
        (
            SAVES,
            {"time_limit": 60, "max_nodes": 1},
            "for 1h, which ends it before the training: submit it again",
        ),
        (SAVES, {"time_limit": 5}, "for 5m, which ends it before the training: submit it again"),
        (SAVES, {"time_limit": 1200, "max_nodes": 4}, " (4 nodes), "),
    ],
    ids=["requeues itself", "ends", "shorter than any", "another size fits"],
)
def test_the_note_on_the_time_limit_is_accurate(cluster, comment, options, said) -> None:
    response = response_to(cluster, comment=comment, **options)
    assert (response.verdict, said in response.say) == (SizingVerdict.OK, True), response.say
    assert "saved and requeued" not in response.say
    ends = "which ends it" in response.say
    assert ("ends at its time limit, before the training" in str(response.fields["admin_comment"])) == ends


def test_no_job_continues_after_a_deadline(cluster) -> None:
    response = response_to(cluster, comment=SAVES, max_nodes=1, requeues=1, deadline="now+2hours")
    assert (response.verdict, "2h of --deadline" in response.say) == (SizingVerdict.REFUSE, True), (
        response.say
    )


def test_a_limit_beyond_the_deadline_is_lowered_to_it(cluster) -> None:
    response = response_to(cluster, time_limit=2000, deadline="now+2hours")
    assert 0 < int(response.fields["time_limit"]) <= 120


@pytest.mark.parametrize(
    ("options", "verdict", "said"),
    [
        ({"gres": "gpu:h100:8", "max_nodes": 1}, SizingVerdict.OK, "its plan needs 8 GPUs, the job has 8"),
        ({"gres": "gpu:4", "min_nodes": 1}, SizingVerdict.OK, "the job has 4"),
        ({"gres": "gpu:h100:1", "num_tasks": 1, "time_limit": 30}, SizingVerdict.OK, "the job has 1"),
        ({"gres": "gpu:h100:8", "max_nodes": 2}, SizingVerdict.REFUSE, "asks for 16 GPUs, its plan needs 8"),
        ({"tres_per_job": "gres:gpu:16"}, SizingVerdict.REFUSE, "asks for 16 GPUs"),
        ({"gres": "gpu:1", "max_nodes": 2, "exclusive": 0}, SizingVerdict.REFUSE, "asks for 16 GPUs"),
    ],
)
def test_a_job_of_rightsizer_sbatch_keeps_its_size_unless_its_plan_needs_less(
    cluster, options, verdict, said
) -> None:
    comment = "rightsizer: model=llama-3.1-8b tokens=10B deadline=72h run=/runs/one"
    response = response_to(cluster, comment, partition="h100", **options)
    assert (response.verdict, said in response.say) == (verdict, True), response.say
    assert set(response.fields) <= {"admin_comment"}
    assert (
        verdict is SizingVerdict.REFUSE or "[rightsizer/1 nodes=1 gpus=" in response.fields["admin_comment"]
    )


def test_whole_nodes_are_of_the_kind_that_was_chosen_without(cluster) -> None:
    shared, whole = response_to(cluster).fields, response_to(cluster, exclusive=0).fields
    gpus = {"h100": 8, "a100": 4}[str(whole["partition"])]
    assert (whole["partition"], whole["max_nodes"]) == (shared["partition"], 1)
    assert str(whole["gres"]).endswith(f":{gpus}")


@pytest.mark.parametrize(
    ("comment", "options"),
    [
        (LORA, {}),
        (LORA, {"exclusive": 0}),
        (LORA, {"num_tasks": 4}),
        (SAVES, {"time_limit": 60, "max_nodes": 1}),
        (SAVES, {"time_limit": 1, "max_nodes": 1}),
    ],
    ids=["plain", "whole nodes", "tasks", "outlasts its limit", "refused"],
)
def test_a_plan_is_resolved_once_for_a_response(cluster, comment, options) -> None:
    resolved = []

    def count(frame, event, _arg) -> None:
        if event == "call" and frame.f_code is sizing.resolve.__code__:
            resolved.append(1)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        response_to(cluster, comment, **options)
    finally:
        sys.setprofile(before)
    assert len(resolved) == 1


def test_other_resources_and_deadlines_change_nothing_that_is_looked_up() -> None:
    plan = sizing.resolve(plan_of(parse(SAVES)))
    deadline = Deadline(finish_within="2h", confidence=0.5)
    resources = plan.plan.spec.resources.model_copy(update={"gpus": 4, "min_gpus": 2, "max_gpus": 8})
    for changes in ({"deadline": deadline}, {"resources": resources}):
        changed = with_spec(plan, **changes)
        assert changed == sizing.resolve(changed.plan) != plan

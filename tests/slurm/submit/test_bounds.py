"""A size never exceeds the user's options beside the comment, in any combination."""

import datetime as dt
import math
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_slurm.cluster.comment import parse, plan_of
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.snapshot import SlurmCluster
from rightsizer_slurm.submit.held_jobs import changes
from rightsizer_slurm.submit.protocol import SizingRequest, SizingResponse, SizingVerdict
from rightsizer_slurm.submit.response import respond

NOW = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
LORA = "rightsizer: model=llama-3.1-8b method=lora tokens=50M"
DENSE = "rightsizer: model=llama-3.1-8b tokens=10B"
COMMENTS = [
    LORA,
    DENSE,
    f"{DENSE} deadline=40h",
    f"{DENSE} launch.checkpoint.path=/ckpt",
    f"{LORA} min=3",
    "rightsizer: model=mixtral-8x7b tokens=1B deadline=72h",
]
NODES_OF = {"n[1-2]": 2, "n3": 1, "a[1-2]": 2}


def optional(values: st.SearchStrategy, unset: object = None) -> st.SearchStrategy:
    return st.just(unset) | values


GRES = st.builds(
    "gres:gpu{}:{}".format, st.sampled_from(["", ":h100", ":a100"]), st.integers(0, 8)
) | st.sampled_from(["gres:gpu:h100:2,gres:gpu:a100:1"])
REQUESTS = st.builds(
    SizingRequest,
    comment=st.sampled_from(COMMENTS),
    max_nodes=optional(st.integers(1, 4)),
    num_tasks=optional(st.integers(1, 16)),
    ntasks_per_node=optional(st.integers(1, 8)),
    cpus_per_task=optional(st.integers(1, 32)),
    time_limit=optional(st.integers(1, 7 * 1440)),
    time_min=optional(st.integers(1, 1440)),
    gres=optional(GRES, ""),
    tres_per_job=optional(GRES, ""),
    exclusive=optional(st.just(0)),
    req_nodes=optional(st.sampled_from(sorted(NODES_OF)), ""),
    partition=st.sampled_from(["", "h100", "a100", "a100,h100"]),
    deadline=optional(st.builds("now+{}hours".format, st.integers(1, 60)), ""),
    requeues=optional(st.just(1)),
)


def placed(request: SizingRequest, cluster: SlurmCluster) -> SizingResponse:
    return respond(
        request, cluster=cluster, site=SiteConfig(), now=NOW, plan_of_file=lambda _: plan_of(parse(LORA))
    )


def gpus(text: str) -> dict[str, int]:
    """GPUs of each type that an option names: {"": 3} for gres:gpu:3."""
    found = re.findall(r"gpu(?::([a-z]\w*))?:(\d+)", text)
    return {kind: int(count) for kind, count in found}


def broken(text: str, placed_kind: str, count: int) -> bool:
    """Whether so many GPUs of that type are more than an option allows."""
    return bool(text) and count > gpus(text).get(placed_kind, gpus(text).get("", 0))


def violations(asked: SizingRequest, update: Mapping[str, str]) -> list[str]:
    """The options that the update of a job breaks, worked out from their texts alone."""
    nodes, kind = int(update["NumNodes"].split("-")[1]), update["TresPerNode"].split(":")[2]
    each, minutes = int(update["TresPerNode"].split(":")[3]), float(update.get("TimeLimit", 0))
    hours_left = float(asked.deadline[4:-5]) if asked.deadline else math.inf
    checks = {
        "--nodes": nodes > (asked.max_nodes or math.inf),
        "--ntasks": int(update.get("NumTasks", 0)) > (asked.num_tasks or math.inf),
        "nodes with tasks": nodes > (asked.num_tasks or math.inf),
        "--gres": broken(asked.gres, kind, each),
        "--gpus": broken(asked.tres_per_job, kind, nodes * each),
        "--time": minutes > (asked.time_limit or math.inf),
        "--time-min": bool(minutes) and minutes < (asked.time_min or 0),
        "--deadline": (minutes or asked.time_limit or 0) > 60 * hours_left,
        "--nodelist": bool(asked.req_nodes) and nodes > NODES_OF[asked.req_nodes],
        "--partition": bool(asked.partition) and update["Partition"] not in asked.partition.split(","),
        "cluster": each > {"h100": 8, "a100": 4}[kind] or nodes > {"h100": 4, "a100": 2}[kind],
    }
    return [option for option, wrong in checks.items() if wrong]


@given(asked=REQUESTS)
def test_no_size_exceeds_what_its_user_wrote(cluster: SlurmCluster, asked: SizingRequest) -> None:
    response = placed(asked, cluster)
    assert response.code != "fault", response.say
    if response.verdict is SizingVerdict.OK:
        update = dict(pair.split("=", 1) for pair in changes(asked, response))
        assert violations(asked, update) == [], (update, response.say)


@pytest.mark.parametrize(
    ("options", "nodes", "gres"),
    [
        ({"min_nodes": 2, "max_nodes": 2, "gres": "gres:gpu:3"}, 2, "gpu:h100:3"),
        ({"num_tasks": 8, "ntasks_per_node": 8}, 1, "gpu:h100:8"),
    ],
    ids=str,
)
def test_a_size_is_on_the_nodes_that_were_priced(cluster, options, nodes, gres) -> None:
    fields = placed(SizingRequest(comment=DENSE, **options), cluster).fields
    assert (fields["max_nodes"], fields["gres"]) == (nodes, gres)


@pytest.mark.parametrize("options", [{"gres": "gres:gpu:0"}, {"tres_per_job": "gres:gpu:h100:0"}], ids=str)
def test_no_gpus_means_none(cluster, options) -> None:
    response = placed(SizingRequest(comment=LORA, **options), cluster)
    assert (response.verdict, "allows no GPU" in response.say) == (SizingVerdict.REFUSE, True), response.say


def test_gpus_of_two_types_are_not_added_up(cluster) -> None:
    response = placed(SizingRequest(comment=LORA, gres="gres:gpu:h100:1,gres:gpu:a100:3"), cluster)
    assert (response.verdict, "several types: a100, h100" in response.say) == (SizingVerdict.KEEP, True)


def test_a_time_limit_is_at_least_the_users_time_min(cluster) -> None:
    assert placed(SizingRequest(comment=LORA, time_min=900), cluster).fields["time_limit"] == 900

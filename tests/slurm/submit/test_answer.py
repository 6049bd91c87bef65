import dataclasses
import datetime as dt

import pytest

from rightsizer_slurm.cluster.comment import parse, plan_of
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.submit.answer import answer
from rightsizer_slurm.submit.protocol import Question, Verdict

LORA = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline=24h"
NOW = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def asked(here, comment=LORA, site=SiteConfig(), **words):  # noqa: B008 (a frozen value)
    question = Question(comment=comment, **words)
    return answer(question, here=here, site=site, now=NOW, plan_of_file=lambda path: plan_of(parse(LORA)))


def test_a_size_sets_nodes_gres_tasks_time_and_never_tasks_per_node(here) -> None:
    given = asked(here)
    assert given.verdict is Verdict.OK
    assert (given.fields["min_nodes"], given.fields["max_nodes"], given.fields["num_tasks"]) == (1, 1, 1)
    assert str(given.fields["gres"]).startswith("gpu:h100:")
    assert given.fields["time_limit"] > 15
    assert "ntasks_per_node" not in given.fields


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        ({"partition": "a100"}, {"partition": "a100"}),
        ({"gres": "gres:gpu:a100:1"}, {"partition": "a100", "gres": "gpu:a100:1"}),
        ({"ntasks_per_node": 4, "num_tasks": 8}, {"num_tasks": 4, "min_cpus": 4}),
        ({"cpus_per_task": 3}, {"num_tasks": 1, "cpus_per_task": 3, "min_cpus": 3}),
        ({"tres_per_job": "gres:gpu:4"}, {"tres_per_job": ""}),
    ],
    ids=" ".join,
)
def test_what_the_user_wrote_bounds_the_size(here, words, fields) -> None:
    given = asked(here, **words)
    assert {key: given.fields[key] for key in fields} == fields


def test_a_time_limit_of_the_users_own_stays(here) -> None:
    assert "time_limit" not in asked(here, time_limit=1200).fields
    refused = asked(here, time_limit=20)
    assert (refused.verdict, "[within a time limit of 20m]" in refused.say) == (Verdict.REFUSE, True)


def test_nodes_that_are_away_are_waited_for(here) -> None:
    away = dataclasses.replace(here, nodes=tuple(dataclasses.replace(n, up=False) for n in here.nodes))
    given = asked(away)
    assert (given.verdict, "waits until they are free" in given.say) == (Verdict.OK, True)


def test_a_partition_whose_mode_is_off_is_not_chosen(here) -> None:
    assert asked(here, site=SiteConfig(partitions={"h100": "off"})).fields["partition"] == "a100"


def test_a_plan_file_is_asked_for_by_its_path(here) -> None:
    assert asked(here, comment="rightsizer: plan=/x.yaml").verdict is Verdict.OK


@pytest.mark.parametrize(
    ("comment", "words", "said"),
    [
        (LORA + " gpu=L40S", {}, "has no partition for this job with L40S"),
        (LORA, {"partition": "nix"}, "is not a partition of this cluster"),
        (LORA + " min=16", {"tres_per_job": "gres:gpu:4"}, "is less than the 16 that the plan requires"),
        ("rightsizer: x=1", {}, "unknown key"),
    ],
)
def test_a_refusal_says_what_is_wrong(here, comment, words, said) -> None:
    given = asked(here, comment=comment, **words)
    assert given.verdict is Verdict.REFUSE
    assert said in given.say


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
def test_gres_types_are_gpus_by_the_sites_map(here, gres, names, partition) -> None:
    nodes = tuple(dataclasses.replace(node, gpu=gres) for node in here.nodes if node.gpu == "h100")
    given = asked(dataclasses.replace(here, nodes=nodes), site=SiteConfig(gpus=names))
    assert given.fields.get("partition") == partition


def test_a_refusal_names_the_partition_with_the_longest_time_limit(here) -> None:
    given = asked(here, comment="rightsizer: model=llama-3.1-8b tokens=500B")
    assert given.verdict is Verdict.REFUSE
    assert "32 H100-SXM5-80GB (4 nodes)" in given.say

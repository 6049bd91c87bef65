import dataclasses
import datetime as dt

import pytest

from rightsizer_api import loads
from rightsizer_slurm.cluster.accounting_limits import AccountingLimits, allowed, parse
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.snapshot import Partition
from rightsizer_slurm.submit.protocol import SizingRequest, SizingVerdict
from rightsizer_slurm.submit.response import respond

# of sacctmgr 22.05, as `rightsizer_slurm.cluster.accounting_limits` asks it
QOS = """\
normal||||||
small||gres/gpu=16|gres/gpu=4,node=2|gres/gpu=8|gres/gpu=12|02:00:00
long|DenyOnLimit,OverPartQOS||gres/gpu=24|||7-00:00:00
part|||gres/gpu=8|||1-00:00:00
"""
ASSOCIATIONS = """\
root|||||||
root|root|||normal|||
lab|||root||gres/gpu=20,cpu=640||
nlp|||lab||gres/gpu:h100=12|gres/gpu=6|12:00:00
nlp|ann|||small||gres/gpu=6|12:00:00
nlp|ben|||normal||gres/gpu=6|12:00:00
nlp|ben|h100||normal||gres/gpu=3|
"""
LIMITS = parse(qos=QOS, associations=ASSOCIATIONS, users="ann|nlp\nben|nlp\n")
BARE = Partition(name="a100")


def bound(user: str, *, qos: str = "", account: str = "", partition: Partition = BARE):
    return allowed(LIMITS, user=user, account=account, qos=qos, partition=partition)


@pytest.mark.parametrize(
    ("user", "options", "gpus", "who"),
    [
        ("ann", {}, 4, "QOS small"),
        ("ben", {}, 6, "user ben"),
        ("ben", {"qos": "long"}, 20, "account lab"),
        ("ben", {"partition": Partition(name="h100")}, 3, "user ben"),
        ("ben", {"partition": Partition(name="h100", own_qos="part")}, 8, "QOS part"),
        ("ben", {"qos": "long", "partition": Partition(name="h100", own_qos="part")}, 20, "account lab"),
        ("ben", {"qos": "small", "account": "lab"}, 4, "QOS small"),
    ],
    ids=[
        "job of QOS",
        "association",
        "group above",
        "of partition",
        "QOS of partition",
        "over it",
        "account",
    ],
)
def test_of_each_limit_the_first_place_counts(user, options, gpus, who) -> None:
    bounds = bound(user, **options)
    assert (bounds.tres["gres/gpu"], bounds.sources["gres/gpu"]) == (gpus, who)


@pytest.mark.parametrize(
    ("options", "seconds"),
    [({"qos": "small"}, 7200.0), ({"qos": "normal"}, 43_200.0), ({"qos": "long"}, 7 * 86_400.0)],
    ids=str,
)
def test_the_wall_time_is_the_qoss_else_the_associations(options, seconds) -> None:
    assert bound("ben", **options).wall_s == seconds


def test_without_slurmdbd_nothing_is_bound() -> None:
    assert allowed(AccountingLimits(), user="ann", account="", qos="small", partition=BARE).tres == {}


def test_a_user_without_an_association_has_only_qos_limits() -> None:
    assert bound("eve", qos="small").tres == {"gres/gpu": 4, "node": 2}


LORA = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline={}"
NOW = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def response_to(cluster, comment: str, *, user: str = "ann", account: str = "nlp", **options):
    request = SizingRequest(comment=comment, user=user, account=account, **options)
    return respond(request, cluster=cluster, site=SiteConfig(), now=NOW, plan_of_file=loads, limits=LIMITS)


def gpus_of(response) -> int:
    return int(str(response.fields["gres"]).rsplit(":", 1)[1]) * int(response.fields["max_nodes"])


def test_a_job_is_sized_within_the_limits(cluster) -> None:
    comment = LORA.format("40m")
    mine = response_to(cluster, comment, user="ben", qos="normal", partition="h100")
    free = response_to(cluster, comment, user="root", account="root")
    assert (mine.verdict, "3 GPUs of user ben" in mine.say, gpus_of(free)) == (SizingVerdict.REFUSE, True, 4)
    assert gpus_of(response_to(cluster, LORA.format("60m"), user="ben", qos="normal")) == 2


def test_a_refusal_names_the_limit_that_binds(cluster) -> None:
    dense = "rightsizer: model=llama-3.1-8b tokens=10B deadline=72h"
    response = response_to(cluster, dense)
    assert response.verdict is SizingVerdict.REFUSE
    assert "4 GPUs of QOS small" in response.say
    assert response_to(cluster, dense, user="root", account="root").verdict is SizingVerdict.OK


def test_a_partition_without_gpus_is_a_refusal_with_that_reason(cluster) -> None:
    none = dataclasses.replace(
        LIMITS, qos={"small": dataclasses.replace(LIMITS.qos["small"], job={"gres/gpu": 0})}
    )
    request = SizingRequest(comment=LORA.format("24h"), user="ann", account="nlp")
    response = respond(request, cluster=cluster, site=SiteConfig(), now=NOW, plan_of_file=loads, limits=none)
    assert (response.verdict, "0 GPUs of QOS small" in response.say) == (SizingVerdict.REFUSE, True)

import dataclasses
import datetime as dt

import pytest

from rightsizer_api import loads
from rightsizer_slurm.cluster.accounting_limits import AccountingLimits, allowed, parse
from rightsizer_slurm.cluster.config import SiteConfig
from rightsizer_slurm.cluster.snapshot import Partition
from rightsizer_slurm.submit.answer import answer
from rightsizer_slurm.submit.protocol import Question, Verdict

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
    ("user", "words", "gpus", "who"),
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
def test_of_each_limit_the_first_place_counts(user, words, gpus, who) -> None:
    found = bound(user, **words)
    assert (found.tres["gres/gpu"], found.sources["gres/gpu"]) == (gpus, who)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [({"qos": "small"}, 7200.0), ({"qos": "normal"}, 43_200.0), ({"qos": "long"}, 7 * 86_400.0)],
    ids=str,
)
def test_the_wall_time_is_the_qoss_else_the_associations(words, seconds) -> None:
    assert bound("ben", **words).wall_s == seconds


def test_without_slurmdbd_nothing_is_bound() -> None:
    assert allowed(AccountingLimits(), user="ann", account="", qos="small", partition=BARE).tres == {}


def test_who_has_no_association_has_the_limits_of_their_qos_alone() -> None:
    assert bound("eve", qos="small").tres == {"gres/gpu": 4, "node": 2}


LORA = "rightsizer: model=llama-3.1-8b method=lora tokens=50M deadline={}"
NOW = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


def asked(here, comment: str, *, user: str = "ann", account: str = "nlp", **words):
    question = Question(comment=comment, user=user, account=account, **words)
    return answer(question, here=here, site=SiteConfig(), now=NOW, plan_of_file=loads, limits=LIMITS)


def gpus_of(given) -> int:
    return int(str(given.fields["gres"]).rsplit(":", 1)[1]) * int(given.fields["max_nodes"])


def test_a_job_is_sized_within_the_limits(here) -> None:
    comment = LORA.format("40m")
    mine = asked(here, comment, user="ben", qos="normal", partition="h100")
    free = asked(here, comment, user="root", account="root")
    assert (mine.verdict, "3 GPUs of user ben" in mine.say, gpus_of(free)) == (Verdict.REFUSE, True, 4)
    assert gpus_of(asked(here, LORA.format("60m"), user="ben", qos="normal")) == 2


def test_a_refusal_names_the_limit_that_binds(here) -> None:
    dense = "rightsizer: model=llama-3.1-8b tokens=10B deadline=72h"
    given = asked(here, dense)
    assert given.verdict is Verdict.REFUSE
    assert "4 GPUs of QOS small" in given.say
    assert asked(here, dense, user="root", account="root").verdict is Verdict.OK


def test_no_gpus_at_all_is_a_refusal_that_says_so(here) -> None:
    none = dataclasses.replace(
        LIMITS, qos={"small": dataclasses.replace(LIMITS.qos["small"], job={"gres/gpu": 0})}
    )
    question = Question(comment=LORA.format("24h"), user="ann", account="nlp")
    given = answer(question, here=here, site=SiteConfig(), now=NOW, plan_of_file=loads, limits=none)
    assert (given.verdict, "0 GPUs of QOS small" in given.say) == (Verdict.REFUSE, True)

"""Our host lists against the real `scontrol show hostnames`."""

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rightsizer_slurm.cluster.hostlist import HostListError, expand

pytestmark = pytest.mark.slurm

NUMBER = st.integers(0, 2000).flatmap(lambda n: st.sampled_from((str(n), f"{n:03}", f"{n:06}")))
SPAN = st.tuples(NUMBER, st.integers(0, 20)).map(lambda span: f"{span[0]}-{int(span[0]) + span[1]}")
RANGES = st.lists(st.one_of(NUMBER, SPAN), min_size=1, max_size=4).map(lambda parts: f"[{','.join(parts)}]")
TEXT = st.text(st.sampled_from("abz09.-_"), max_size=5)
PLAIN = TEXT.filter(bool)
BRACKETS = st.tuples(TEXT, RANGES, st.one_of(st.just(""), st.tuples(TEXT, RANGES).map("".join))).map("".join)
IS_NO_OPTION = re.compile("[^-]").match
LISTS = st.lists(st.one_of(PLAIN, BRACKETS), min_size=1, max_size=4).map(",".join).filter(IS_NO_OPTION)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=LISTS)
@example(text="n[9-010]")
@example(text="n[1-65536]")
@example(text="n1,,n2, n3")
def test_a_list_has_the_same_hosts_as_slurm_s(slurm: Any, text: str) -> None:
    said = slurm.run("scontrol", "show", "hostnames", text).split()
    assert expand(text) == tuple(dict.fromkeys(said))


@pytest.mark.parametrize("text", ["n[3-1]", "n[1,]", "n[]", "n[a-b]", "n[[1]]", "n[1-2]x", "n[1-65537]"])
def test_what_slurm_refuses_is_refused(slurm: Any, text: str) -> None:
    assert "Invalid hostlist" in slurm.ask("scontrol", "show", "hostnames", text).stderr
    with pytest.raises(HostListError):
        expand(text)

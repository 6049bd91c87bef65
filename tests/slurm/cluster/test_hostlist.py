"""tests/e2e/slurm/test_slurm_hostlist.py compares with the real `scontrol show hostnames`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_slurm.cluster.hostlist import MOST_HOSTS, HostListError, expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", ""),
        ("n1,n2", "n1 n2"),
        ("n1 n2\tn3\nn4,,n5,", "n1 n2 n3 n4 n5"),
        ("n[1-3,7]", "n1 n2 n3 n7"),
        ("n[01-02],m[099-101]", "n01 n02 m099 m100 m101"),
        ("r[1-2]n[3-4]", "r1n3 r1n4 r2n3 r2n4"),
        ("[1-2]", "1 2"),
        ("n1,n[1-2],n2", "n1 n2"),
    ],
)
def test_a_list_is_expanded_as_slurm_does(text, names):
    assert expand(text) == tuple(names.split())


@pytest.mark.parametrize(
    "text",
    [
        *("n[1-", "n]1[", "n[[1]]", "n[]", "n[1,]", "n[3-1]", "n[-1]", "n[a-b]", "n[1-2-3]", "n[\u0661]"),
        *("n[1-2]x", f"n[{'9' * 19}]", f"n[1-{MOST_HOSTS + 1}]", "a" * 256, "n[1]" * 6),
    ],
)
def test_an_invalid_list_of_hosts_is_refused(text):
    with pytest.raises(HostListError):
        expand(text)


@pytest.mark.parametrize(
    "text",
    [
        "n[0-99999999999]",
        "n[1-65536][1-65536][1-65536][1-65536][1-65536]",
        f"n[{','.join(['1-65536'] * 50_000)}]",
        ",".join(["n[1-65536]"] * 50_000),
        ",".join(["n"] * (MOST_HOSTS + 1)),
        "n[" * 400_000,
        "a" * 2**21,
    ],
    ids=["range", "dimensions", "ranges", "entries", "names", "brackets", "letters"],
)
def test_a_hostile_list_is_refused_before_it_is_expanded(text):
    with pytest.raises(HostListError) as refused:
        expand(text)
    assert len(str(refused.value)) < 200


@given(st.text(st.sampled_from("n09[]-, a"), max_size=40))
def test_any_text_gives_distinct_bounded_names_or_is_refused(text):
    try:
        names = expand(text)
    except HostListError:
        return
    assert len(set(names)) == len(names) <= MOST_HOSTS
    assert not [name for name in names if set("[], ").intersection(name)]
    assert expand(",".join(names)) == names


@given(st.integers(0, 10**9), st.integers(0, 300), st.integers(1, 12))
def test_a_range_has_each_of_its_numbers_with_the_digits_of_the_first(first, more, digits):
    numbers = range(first, first + more + 1)
    written = f"n[{first:0{digits}}-{first + more}]"
    assert [int(name[1:]) for name in expand(written)] == list(numbers)
    assert min(map(len, expand(written))) >= 1 + digits

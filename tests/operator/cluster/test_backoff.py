import pytest

from rightsizer_operator.cluster.backoff import Backoff

BACKOFF = Backoff(first_s=0.2, longest_s=60.0)


@pytest.mark.parametrize(("failures", "wait_s"), [(1, 0.2), (2, 0.4), (5, 3.2), (10, 60.0), (10_000, 60.0)])
def test_waits_double_up_to_the_longest(failures, wait_s):
    assert BACKOFF.wait_s(failures) == wait_s


@pytest.mark.parametrize(("at_least_s", "wait_s"), [(None, 0.4), (0.1, 0.4), (7.0, 7.0)])
def test_the_server_may_ask_for_a_longer_wait(at_least_s, wait_s):
    assert BACKOFF.wait_s(2, at_least_s=at_least_s) == wait_s


@pytest.mark.parametrize(("drawn", "wait_s"), [(0.0, 0.2), (1.0, 0.1)])
def test_jitter_shortens_a_wait_and_never_the_server_s(drawn, wait_s):
    spread = Backoff(first_s=0.2, longest_s=60.0, jitter=0.5)
    assert spread.wait_s(1, uniform=lambda: drawn) == pytest.approx(wait_s)
    assert spread.wait_s(1, at_least_s=3.0, uniform=lambda: drawn) == 3.0

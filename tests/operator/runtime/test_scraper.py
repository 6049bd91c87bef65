import asyncio

import pytest

from rightsizer_operator.runtime.scraper import ScrapeSchedule, read_limited

KEY = ("team", "demo")


def scraped(sweeps, answers):
    """The sweeps of 15 s in which a plan is scraped that answers in those of `answers`."""
    schedule, scraped = ScrapeSchedule(15.0), []
    for sweep in range(sweeps):
        now_s = 15.0 * sweep
        if schedule.due(KEY, now_s=now_s):
            scraped.append(sweep)
            schedule.record(KEY, answered=sweep in answers, now_s=now_s + 2.0)
    return scraped


@pytest.mark.parametrize(
    ("answers", "when"),
    [
        (range(20), list(range(20))),
        ((), [0, 1, 2, 4, 8, 16]),
        ((4,), [0, 1, 2, 4, 5, 6, 7, 9, 13]),
    ],
    ids=["always", "never", "once"],
)
def test_plans_that_do_not_answer_are_scraped_less_often(answers, when):
    assert scraped(20, answers) == when


def test_plans_that_do_not_run_are_dropped():
    schedule = ScrapeSchedule(15.0)
    schedule.addresses[KEY] = "10.0.0.1"
    schedule.record(KEY, answered=False, now_s=0.0)
    schedule.keep(())
    assert (schedule.addresses, schedule.due(KEY, now_s=0.0)) == ({}, True)


class Chunks:
    """A body that arrives in pieces, as from a slow worker."""

    def __init__(self, *chunks):
        self.chunks = chunks

    async def iter_any(self):
        for chunk in self.chunks:
            yield chunk


@pytest.mark.parametrize(
    ("most_bytes", "body"), [(8, b"654321"), (6, b"654321"), (5, None)], ids=["fits", "just", "too long"]
)
def test_a_body_is_read_to_its_end_or_not_at_all(most_bytes, body):
    assert asyncio.run(read_limited(Chunks(b"6", b"543", b"21"), most_bytes=most_bytes)) == body

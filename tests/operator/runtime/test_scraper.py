import asyncio

import pytest

from rightsizer_operator.runtime.scraper import ScrapeSchedule, read_limited

KEY = ("team", "demo")


def asked(sweeps, answers):
    """In which of so many sweeps of 15 s a plan is asked that answers in those of `answers`."""
    book, found = ScrapeSchedule(15.0), []
    for sweep in range(sweeps):
        now_s = 15.0 * sweep
        if book.due(KEY, now_s=now_s):
            found.append(sweep)
            book.heard(KEY, answered=sweep in answers, now_s=now_s + 2.0)
    return found


@pytest.mark.parametrize(
    ("answers", "when"),
    [
        (range(20), list(range(20))),
        ((), [0, 1, 2, 4, 8, 16]),
        ((4,), [0, 1, 2, 4, 5, 6, 7, 9, 13]),
    ],
    ids=["always", "never", "once"],
)
def test_plans_that_do_not_answer_are_asked_less_and_less(answers, when):
    assert asked(20, answers) == when


def test_plans_that_do_not_run_are_forgotten():
    book = ScrapeSchedule(15.0)
    book.known[KEY] = "10.0.0.1"
    book.heard(KEY, answered=False, now_s=0.0)
    book.keep(())
    assert (book.known, book.due(KEY, now_s=0.0)) == ({}, True)


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

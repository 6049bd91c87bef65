"""Faults of a comment, found before its job is held: in about a millisecond, so that slurmctld can wait.

Only a `plan=` file takes longer. Threads of its own read it, and only for as long as slurmctld may wait:
a file system that hangs stops neither the daemon nor other submits.
"""

import asyncio
import contextlib
import datetime as dt
import threading
from collections.abc import Callable

from rightsizer_api import TrainingPlan, sizing
from rightsizer_api.sizing import ResolvedPlan
from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.errors import InputError, RightsizerError
from rightsizer_slurm.cluster.comment import Comment, parse, plan_of, with_user_key
from rightsizer_slurm.submit import plan_files
from rightsizer_slurm.submit.protocol import SizingRequest

_FILES = 2  # read at once
_WAIT_S = 0.1  # of the plugin's time-out, 0.3 s
_LONGEST, _LONGEST_VALUE = 600, 80
_WARM_UP = ("rightsizer: model=no-such tokens=1B", "rightsizer: model=gpt2 tokens=1B gpu=no-such")

PlanOfFile = Callable[[str, int], TrainingPlan | None]


def valid_plan(comment: Comment, *, now: dt.datetime, beneath: TrainingPlan | None = None) -> ResolvedPlan:
    """The plan of a comment. InputError, by the key that the user wrote, if it cannot be sized anywhere."""
    plan = plan_of(comment, beneath=beneath)
    try:
        sizing.deadline_s(plan, now=now)
        return sizing.resolve(plan)
    except InputError as error:
        raise with_user_key(error, comment) from None


def message(error: RightsizerError) -> str:
    """An error in one line, without an empty value; a long value does not hide the remedy."""
    if not isinstance(error, InputError):
        return one_line(str(error), _LONGEST)
    value = "" if error.value in (None, "") else f" {one_line(repr(error.value), _LONGEST_VALUE)}:"
    return one_line(f"{one_line(error.field, _LONGEST_VALUE)}:{value} {error.remedy}", _LONGEST)


class Validator:
    """Checks comments and, as far as time allows, the plan files that they name."""

    def __init__(self, plan_of_file: PlanOfFile = plan_files.read_small, *, wait_s: float = _WAIT_S) -> None:
        """`plan_of_file` reads a file (its path, its user); None if that would take long."""
        self._plan_of_file, self._wait_s = plan_of_file, wait_s
        self._reading = 0

    def warm_up(self) -> None:
        """Build the tables of names, so that the first wrong name is answered as quickly as the next."""
        for words in _WARM_UP:
            with contextlib.suppress(RightsizerError):
                valid_plan(parse(words), now=dt.datetime.now(dt.UTC))

    async def error(self, request: SizingRequest) -> str:
        """The fault of a request, in one line; empty if none is found in time."""
        try:
            comment = parse(request.comment)
            if not comment.plan:
                valid_plan(comment, now=dt.datetime.now(dt.UTC))
                return ""
        except RightsizerError as error:
            return message(error)
        if self._reading == _FILES:
            return ""
        self._reading += 1
        reading: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        threading.Thread(target=self._read, args=(comment, request.uid, reading), daemon=True).start()
        done, _ = await asyncio.wait((reading,), timeout=self._wait_s)
        return reading.result() if done else ""

    def _read(self, comment: Comment, uid: int, reading: "asyncio.Future[str]") -> None:
        said = ""
        try:
            plan = self._plan_of_file(comment.plan, uid)
            if plan is not None:
                valid_plan(comment, now=dt.datetime.now(dt.UTC), beneath=plan)
        except RightsizerError as error:
            said = message(error)
        finally:
            with contextlib.suppress(RuntimeError):  # the daemon has ended
                reading.get_loop().call_soon_threadsafe(self._done, reading, said)

    def _done(self, reading: "asyncio.Future[str]", said: str) -> None:
        self._reading -= 1
        reading.set_result(said)

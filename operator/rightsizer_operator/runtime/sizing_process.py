"""The work of a sizing process: one request within a budget of processor time."""

import signal
import types

from rightsizer_api.state import State
from rightsizer_operator.reconcile.sizing_response import SizeRequest, SizeResponse, respond

_AGAIN_S = 0.05  # Python drops an exception that is raised in a callback of the garbage collector


class _OverBudgetError(BaseException):
    """The budget is spent. No `except Exception` of the search catches it."""


def respond_within(asked: tuple[SizeRequest, float]) -> SizeResponse | None:
    """The result, or None if it takes more seconds of processor time than this."""
    size_request, budget_s = asked
    signal.signal(signal.SIGPROF, _stop)
    try:
        signal.setitimer(signal.ITIMER_PROF, budget_s, _AGAIN_S)
        try:
            return respond(size_request)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
    except _OverBudgetError:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        return None
    except Exception as error:  # a fault of ours is the plan's, not the next one's
        return SizeResponse(message=f"{type(error).__name__}: {error}", refusal=State.FAULT)


def _stop(_signal: int, _frame: types.FrameType | None) -> None:
    raise _OverBudgetError

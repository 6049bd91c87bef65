"""The progress display: a live view on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rightsizer_engine.units import format_count, format_duration, format_tokens
from rightsizer_engine.values import immutable
from rightsizer_launch.running.run_totals import RunTotals

_LINE_EVERY_S = 5.0


@immutable
class Expectation:
    """The prediction: total tokens, tokens/s, and the deadline in seconds from `began_s` (Unix time)."""

    target_tokens: float
    tokens_per_s: float
    deadline_s: float | None
    began_s: float


def eta_s(totals: RunTotals, expected: Expectation) -> float:
    """Seconds to the end, at the median measured rate after the warm-up, before at the predicted rate.

    The prediction is calibrated with earlier runs.
    """
    measured = totals.recent_tokens_per_s
    rate = expected.tokens_per_s if measured is None else measured
    return max(0.0, expected.target_tokens - totals.tokens) / max(rate, 1e-9)


def status_rows(
    totals: RunTotals, failures: int, expected: Expectation, *, now_s: float
) -> list[tuple[str, str]]:
    """The view's lines, as (name, value)."""
    left = eta_s(totals, expected)
    lines = [
        (
            "tokens",
            f"{format_tokens(totals.tokens)} of {format_tokens(expected.target_tokens)}, step {totals.step}",
        ),
        (
            "tokens/s",
            f"{format_count(totals.tokens_per_s)} measured, {format_count(expected.tokens_per_s)} predicted",
        ),
        ("loss", "-" if totals.loss is None else f"{totals.loss:.3f}"),
        ("ETA", _against(left, expected, now_s)),
        ("restarts", f"{failures}, {totals.lost_steps} step(s) repeated"),
    ]
    if totals.saved_step:
        lines.append(("checkpoint", f"step {totals.saved_step}"))
    return lines


def _against(left_s: float, expected: Expectation, now_s: float) -> str:
    text = f"in {format_duration(left_s)}"
    if expected.deadline_s is None:
        return text
    spare = expected.deadline_s - (now_s - expected.began_s) - left_s
    return f"{text}, {format_duration(abs(spare))} {'before' if spare >= 0 else 'AFTER'} the deadline"


@dataclass(slots=True)
class View:
    """A watcher for the supervisor, on a rich console."""

    console: Console
    expected: Expectation
    clock: Callable[[], float] = time.time
    _live: Live | None = None
    _last_line_s: float = field(default=0.0)
    _last_step: int = field(default=0)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def note(self, text: str) -> None:
        """Print an event, which stays on the screen."""
        now_text = time.strftime("%H:%M:%S", time.localtime(self.clock()))
        self.console.print(Text(f"{now_text}  {text}"), soft_wrap=True)

    def update(self, totals: RunTotals, failures: int) -> None:
        """Show the progress."""
        now_s = self.clock()
        if self._live is not None:
            self._live.update(_panel(totals, failures, self.expected, now_s))
        elif totals.step != self._last_step and now_s - self._last_line_s >= _LINE_EVERY_S:
            self._last_line_s = now_s
            named = dict(status_rows(totals, failures, self.expected, now_s=now_s))
            pace = f"{named['tokens/s']} tokens/s; ETA {named['ETA']}"
            self.note(f"tokens {named['tokens']}; loss {named['loss']}; {pace}")
            self._last_step = totals.step


def _panel(totals: RunTotals, failures: int, expected: Expectation, now_s: float) -> Group:
    table = Table.grid(padding=(0, 2))
    for name, value in status_rows(totals, failures, expected, now_s=now_s):
        table.add_row(Text(name, style="bold"), value)
    share = totals.tokens / max(expected.target_tokens, 1.0)
    return Group(ProgressBar(total=100, completed=min(100.0, 100 * share), width=60), table)

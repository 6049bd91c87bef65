"""The summary of a finished run."""

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from rightsizer_engine.units import format_count, format_duration, format_tokens

_FAIR = (0.7, 1.4)  # measured over predicted; outside of it the summary explains


def summary(report: Mapping[str, Any], console: Console) -> None:
    """Print a run's result: predicted and measured rates, losses, the same plan on H100s."""
    loss = report["loss"]
    console.print(
        f"{report['name']}: {report['state']} at step {report['step']}, "
        f"{format_tokens(report['tokens'])} of {format_tokens(report['targetTokens'])} tokens; "
        f"loss {_loss(loss['first'])} -> {_loss(loss['last'])}",
        soft_wrap=True,
    )
    console.print(_attempts(report["attempts"]))
    ratios = [a["measuredOverPredicted"] for a in report["attempts"] if a["measuredOverPredicted"]]
    if any(not _FAIR[0] <= ratio <= _FAIR[1] for ratio in ratios):
        hint = "the rate differs from the prediction; --measure measures this machine again"
        console.print(hint, soft_wrap=True)
    phases = ", ".join(f"{name} {format_duration(s)}" for name, s in report["secondsByPhase"].items() if s)
    console.print(
        f"restarts {report['restarts']}, repeated steps {report['lostSteps']}; time: {phases or 'none'}",
        soft_wrap=True,
    )
    other = report["elsewhere"]
    verdict = other.get("verdict") or other.get("error", "")
    console.print(f"the same plan on H100s: {verdict}", soft_wrap=True)


def _attempts(attempts: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    for heading in ("attempt", "workers", "predicted", "measured", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    for attempt in attempts:
        measured = attempt["measured"]
        table.add_row(
            str(attempt["number"]),
            str(attempt["workers"]),
            f"{format_count(attempt['predicted']['tokensPerSecond'])} tok/s",
            f"{format_count(measured['tokensPerSecond'])} tok/s" if measured else "-",
            f"{attempt['measuredOverPredicted']:.2f}" if measured else "-",
        )
    return table


def _loss(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"

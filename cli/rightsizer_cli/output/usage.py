"""The GPU usage report as tables, JSON or an HTML page."""

import datetime as dt
import sys
from dataclasses import asdict
from pathlib import Path

import typer
from rich.table import Table
from rich.text import Text

from rightsizer_cli.output.console import echo_json, show
from rightsizer_cli.output.documents.usage import (
    NoDataDocument,
    OwnerDocument,
    UsageDocument,
    WorkloadDocument,
)
from rightsizer_cli.output.exits import NO_DATA, OK
from rightsizer_engine.errors import InputError
from rightsizer_engine.units import format_duration
from rightsizer_telemetry.coverage import NoData
from rightsizer_telemetry.html_report import page
from rightsizer_telemetry.usage import Usage, UsageReport, owners, total


def print_usage(usage: UsageReport | NoData, *, html: Path | None, as_json: bool) -> int:
    """Print the report, or what the metrics server lacks; the exit code."""
    if isinstance(usage, NoData):
        if as_json:
            echo_json(NoDataDocument(no_data=usage.reason, remedy=usage.remedy))
        typer.echo(f"unknown: {usage.reason}; {usage.remedy}", err=True)
        return NO_DATA
    if html is not None:
        _write(html, page(usage))
        if str(html) == "-":
            return OK
    if as_json:
        echo_json(_document(usage))
    else:
        show(
            _headline(usage),
            *map(_note, usage.coverage.notes),
            "In GPU-hours:",
            _owners(usage),
            _workloads(usage),
        )
    return OK


def _document(report: UsageReport) -> UsageDocument:
    """The report as JSON."""
    return UsageDocument(
        at=dt.datetime.fromtimestamp(report.at_s, dt.UTC).isoformat(timespec="seconds"),
        window_s=report.window_s,
        covered_s=report.coverage.gpu_s,
        read_from="rules" if report.coverage.recorded else "raw series",
        notes=tuple(report.coverage.notes),
        free_gpu_h=report.free_gpu_h,
        owners=tuple(OwnerDocument(**asdict(owner)) for owner in owners(report)),
        workloads=tuple(
            WorkloadDocument(
                **asdict(use),
                owner=use.owner,
                busy_mean=use.busy_mean,
                idle_usd=use.idle_usd,
                needs_gpus=use.needs_gpus,
            )
            for use in report.workloads
        ),
    )


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text)
    except OSError as error:
        raise InputError("--html", value=str(path), remedy=f"cannot be written: {error.strerror}") from None


def _headline(report: UsageReport) -> str:
    """The idle GPU-hours of those that are measured."""
    every = total(report)
    over = f"over {format_duration(report.window_s)}"
    measured = every.held_gpu_h - every.unmetered_gpu_h
    if every.idle_gpu_h is None:
        return f"idle GPU-hours unknown: {every.held_gpu_h:,.1f} held, none of them measured, {over}"
    money = "" if every.idle_usd is None else f", {every.idle_usd:,.0f} USD"
    share = f" ({every.idle_gpu_h / measured:.0%} of those measured)" if measured else ""
    return f"{every.idle_gpu_h:,.1f} GPU-hours idle{share}{money}, {over}"


def _note(note: str) -> Text:
    return Text(f"Note: {note}.")


def _owners(report: UsageReport) -> Table:
    table = _table("owner", "on", "workloads", "held", "busy", "idle", "not measured", "idle USD")
    for owner in owners(report):
        table.add_row(
            Text(owner.name),
            owner.executor,
            str(owner.workloads),
            f"{owner.held_gpu_h:,.1f}",
            _number(owner.used_gpu_h, ",.1f"),
            _number(owner.idle_gpu_h, ",.1f"),
            f"{owner.unmetered_gpu_h:,.1f}",
            _number(owner.idle_usd, ",.0f"),
        )
    return table


def _workloads(report: UsageReport) -> Table:
    table = _table("workload", "owner", "GPUs", "held", "busy", "idle", "idle USD", "needed")
    for use in report.workloads:
        table.add_row(
            Text(_name(use)),
            Text(use.owner),
            str(use.gpus),
            f"{use.held_gpu_h:,.1f}",
            _number(use.busy_mean, ".0%"),
            _number(use.idle_gpu_h, ",.1f"),
            _number(use.idle_usd, ",.0f"),
            _number(use.needs_gpus, ",d"),
        )
    return table


def _name(use: Usage) -> str:
    return f"{use.workload} ({use.cluster})" if use.cluster else use.workload


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        text_columns = {"owner", "on", "workload"}
        table.add_column(name, justify="left" if name in text_columns else "right", overflow="fold")
    return table


def _number(value: float | None, form: str) -> str:
    return "unknown" if value is None else format(value, form)

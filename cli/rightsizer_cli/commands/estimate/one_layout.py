"""`estimate` of one layout, whether it fits or not."""

from dataclasses import replace
from pathlib import Path

from rich.text import Text

from rightsizer.domain.framework import Framework
from rightsizer.domain.layout import Layout, Sharding
from rightsizer.domain.workload import Recompute
from rightsizer.estimate.memory import Verdict
from rightsizer.search.explain import evidence_text, familiarity_of, gpus_text, layout_text
from rightsizer.search.layout_space import domain_gpus
from rightsizer.search.options import price_layout
from rightsizer.search.types import Option, Plan, Request
from rightsizer.units import format_bytes, format_count, format_duration
from rightsizer.values import immutable
from rightsizer_api import sizing
from rightsizer_cli.console import echo_json, show
from rightsizer_cli.inputs import calibrated, read
from rightsizer_cli.options import HardwareFlags, JobFlags, LayoutFlags
from rightsizer_cli.render import measured_lines, option_tables, request_line
from rightsizer_cli.usage_errors import OptionError

__all__ = ["Priced", "layout_from", "priced", "print_estimate"]

ANY_TOKENS = "1T"
"""Placeholder for a missing --tokens; figures that depend on it are not printed."""

RUN_FIELDS = ("steps", "finish_seconds", "finish_at_confidence_seconds", "interval", "cost_usd", "energy_kwh")

SHARDINGS = {s.name.lower(): s for s in Sharding}


@immutable
class Priced:
    """One layout, priced, and whether it fits; `request` is the question."""

    request: Request
    option: Option
    fits: Verdict


def _is_whole_run(file: Path | None, job: JobFlags) -> bool:
    """Whether the run's tokens are known, and not only its step."""
    return file is not None or any(said is not None for said in (job.tokens, job.examples, job.dataset))


def priced(
    file: Path | None, job: JobFlags, hardware: HardwareFlags, flags: LayoutFlags, *, ignore: bool
) -> Priced:
    """Predict one layout; without tokens the figures of a run mean nothing, those of a step do."""
    whole_run = _is_whole_run(file, job)
    _, request = read(file, job if whole_run else replace(job, tokens=ANY_TOKENS), hardware)
    request = calibrated(request, ignore=ignore)
    if len(request.clusters) != 1:
        names = ", ".join(cluster.gpu.name for cluster in request.clusters)
        raise OptionError("--gpu", value=names, remedy="name exactly one GPU type to estimate a layout")
    option, fits = price_layout(request, layout_from(flags, request=request))
    return Priced(request=request, option=option, fits=fits)


def print_estimate(
    file: Path | None,
    job: JobFlags,
    hardware: HardwareFlags,
    flags: LayoutFlags,
    *,
    as_json: bool,
    ignore: bool = False,
) -> None:
    """Predict one layout and print it; without --tokens, only the figures of a step."""
    whole_run = _is_whole_run(file, job)
    found = priced(file, job, hardware, flags, ignore=ignore)
    request, option, fits = found.request, found.option, found.fits
    verdict = (
        f"{gpus_text(option)}, {layout_text(option.layout)}: {format_duration(option.step_s)} a step,"
        f" {format_count(option.tokens_per_s / option.gpus)} tokens/s a GPU,"
        f" {'' if fits is Verdict.FITS else f'{fits}: '}{format_bytes(option.device_bytes)} a GPU"
    )
    if as_json:
        answer = Plan(request=request, option=option, runners_up=(), reasons=(), binding="layout", curve=(),
                      layouts_evaluated=1)  # fmt: skip
        unknown = {} if whole_run else dict.fromkeys(RUN_FIELDS)
        report = sizing.report(answer).model_copy(
            update={"feasible": fits is not Verdict.DOES_NOT_FIT, "verdict": verdict} | unknown
        )
        echo_json(report.model_dump(mode="json", by_alias=True))
        return
    style = {Verdict.FITS: "bold green", Verdict.TIGHT: "bold yellow"}.get(fits, "bold red")
    show(
        Text(verdict, style=style),
        request_line(request, whole_run=whole_run),
        *option_tables(option, whole_run=whole_run),
        Text(f"Measured like this: {evidence_text(familiarity_of(request, option))}"),
        *measured_lines(request, option),
    )


def layout_from(flags: LayoutFlags, *, request: Request) -> Layout:
    """The layout of the flags; missing values follow from the GPUs, the batch and the framework."""
    network = request.architecture
    if network.heads % flags.tp:
        raise OptionError("--tp", value=flags.tp, remedy=f"must divide the model's {network.heads} heads")
    if flags.pp * flags.vpp > network.layers:
        raise OptionError(
            "--pp", value=flags.pp, remedy=f"has more stages than the model's {network.layers} layers"
        )
    model_ranks = flags.tp * flags.pp * flags.cp
    dp = _data_parallel(flags, model_ranks)
    sharding, group = _sharding(flags, request, data_ranks=dp * flags.cp)
    per_pass = dp * flags.micro_batch
    wanted = request.workload.global_batch_sequences
    recompute = request.workload.recompute
    return Layout(
        dp=dp,
        tp=flags.tp,
        pp=flags.pp,
        vpp=flags.vpp,
        cp=flags.cp,
        ep=_expert_parallel(flags, dp, request),
        sequence_parallel=flags.tp > 1,
        sharding=sharding,
        shard_group=group,
        micro_batch=flags.micro_batch,
        micro_batches=max(1, round(wanted / per_pass)),
        recompute=request.framework.default_recompute if recompute is Recompute.AUTO else recompute,
    )


def _data_parallel(flags: LayoutFlags, model_ranks: int) -> int:
    if flags.gpus is None:
        return flags.dp or 1
    if flags.gpus % model_ranks:
        raise OptionError(
            "--gpus", value=flags.gpus, remedy=f"must be a multiple of tp x pp x cp = {model_ranks}"
        )
    dp = flags.gpus // model_ranks
    if flags.dp not in (None, dp):
        raise OptionError(
            "--dp", value=flags.dp, remedy=f"must be {dp}: gpus = dp x tp x pp x cp; or leave it out"
        )
    return dp


def _expert_parallel(flags: LayoutFlags, dp: int, request: Request) -> int:
    experts, ranks = request.architecture.experts, dp * flags.cp * flags.tp
    if flags.ep > 1 and (not experts or experts % flags.ep):
        raise OptionError("--ep", value=flags.ep, remedy=f"must divide the model's {experts} experts")
    if ranks % flags.ep:
        raise OptionError("--ep", value=flags.ep, remedy=f"must divide dp x cp x tp = {ranks}")
    return flags.ep


def _sharding(flags: LayoutFlags, request: Request, *, data_ranks: int) -> tuple[Sharding, int]:
    """The flag's sharding (default: the most that the framework supports), and the ranks of a shard group."""
    kind = _kind_of_sharding(flags, request.framework)
    if data_ranks == 1:
        return Sharding.NONE, 0
    if kind is not Sharding.HSDP:
        return kind, 0
    group = domain_gpus(request.clusters[0]) // flags.tp
    if group >= data_ranks:  # one group: full sharding by another name
        return Sharding.ZERO3, 0
    if group < 2 or group % flags.cp or data_ranks % group:
        remedy = (
            f"{data_ranks} data-parallel ranks (dp x cp) make no whole groups of {group} (a node); use zero3"
        )
        raise OptionError("--sharding", value=flags.sharding, remedy=remedy)
    return kind, group


def _kind_of_sharding(flags: LayoutFlags, framework: Framework) -> Sharding:
    """The flag's kind of sharding; default: the most that the framework supports."""
    if flags.sharding is not None:
        kind = flags.sharding.lower()
        if kind not in SHARDINGS:
            raise OptionError(
                "--sharding", value=flags.sharding, remedy=f"must be one of {', '.join(SHARDINGS)}"
            )
        return SHARDINGS[kind]
    if framework.can_zero3:
        return Sharding.ZERO3
    return Sharding.ZERO1 if framework.can_zero1 else Sharding.NONE

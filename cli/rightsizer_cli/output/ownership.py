"""Rent or buy, and the plan in stages: `rightsizer plan --compare-ownership`."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from rightsizer_cli.output.plan_output import Section
from rightsizer_cli.output.render import table
from rightsizer_cli.requests.plan_extras import figures
from rightsizer_engine.estimate.ownership import BilledRun, OwnershipComparison, compare, terms
from rightsizer_engine.search.pricing.context import checkpoint_bytes
from rightsizer_engine.search.scale_up import ScaleUpStage, stages
from rightsizer_engine.search.types import Plan
from rightsizer_engine.units import format_duration, format_usd


def section(plan: Plan, given: Sequence[str]) -> Section:
    """The part of the command's output below the plan."""
    found = _comparison(plan, figures(given))
    return Section(parts=_page(plan, found), document=_document(plan, found))


def _comparison(plan: Plan, given: dict[str, float]) -> OwnershipComparison:
    """Each offer for this plan's run."""
    option, request = plan.option, plan.request
    job = BilledRun(
        cluster=option.cluster,
        gpus=option.gpus + option.spare_nodes * option.cluster.gpus_per_node,
        wall_s=option.finish_s,
        goodput=option.goodput,
        checkpoint_bytes=checkpoint_bytes(request),
        reliability=request.reliability,
    )
    return compare(job, terms(option.cluster, given))


def _page(plan: Plan, found: OwnershipComparison) -> list[RenderableType]:
    """The offers, the stages, and the assumptions with their sources."""
    verdict = Group(*map(Text, _verdict(found)))
    return [_offers(found), verdict, Group(*_stages(stages(plan))), Group(*_assumptions(found))]


def _document(plan: Plan, found: OwnershipComparison) -> dict[str, object]:
    """Both as JSON; null: never, or not known."""
    from rightsizer_cli.output.documents.plan import OfferDocument, OwnershipDocument, StageDocument

    ownership = OwnershipDocument(
        gpus=found.gpus,
        purchase_usd=found.purchase_usd,
        jobs_a_year=found.jobs_a_year,
        owned_pays_from_jobs_a_year=found.pays_from_jobs,
        offers=tuple(
            OfferDocument(
                name=offer.name,
                usd_per_gpu_hour=offer.usd_per_gpu_h,
                finish_seconds=offer.wall_s,
                cost_usd=offer.usd,
                stream_cost_usd=offer.stream_usd,
                pays_from_gpu_hours_a_year=offer.pays_from_gpu_h,
            )
            for offer in found.offers
        ),
        assumptions=found.terms.assumptions,
    )
    staged = tuple(
        StageDocument(
            name=stage.name,
            gpus=stage.gpus,
            seconds=stage.wall_s,
            cost_usd=stage.usd,
            must_show=stage.must_show,
        )
        for stage in stages(plan)
    )
    return {"ownership": ownership, "stages": staged}


def _offers(found: OwnershipComparison) -> RenderableType:
    """One row for each offer."""
    grid = table("Rent or buy", ">a GPU-hour", ">finish", ">this plan alone", ">in a stream", ">pays from")
    for offer in found.offers:
        pays = "" if offer.pays_from_gpu_h is None else f"{offer.pays_from_gpu_h:,.0f} GPU-h a year"
        grid.add_row(
            offer.name,
            format_usd(offer.usd_per_gpu_h),
            format_duration(offer.wall_s),
            format_usd(offer.usd),
            format_usd(offer.stream_usd),
            pays,
        )
    return grid


def _verdict(found: OwnershipComparison) -> list[str]:
    """The break-even, the cheapest offer of a stream, and what "alone" means."""
    gpus, owned = found.gpus, next(offer for offer in found.offers if offer.name == "owned")
    text = f"Owning {gpus:,} GPUs ({format_usd(found.purchase_usd)} to buy)"
    if owned.pays_from_gpu_h is None:
        text += " never pays against the on-demand rate"
    else:
        busy = owned.pays_from_gpu_h / gpus / 8760
        text += f" pays from {owned.pays_from_gpu_h:,.0f} GPU-hours a year (in use {busy:.0%} of it),"
        text += f" or {found.pays_from_jobs:,.3g} such plans a year"
    best = min(found.offers, key=lambda offer: offer.stream_usd)
    return [
        text,
        f"Cheapest in a stream of {found.jobs_a_year:,.3g} such plans a year, with the GPUs in use "
        f"{found.terms.utilization:.0%} of it: {best.name}",
        f"Alone, a reservation is paid for a year and own GPUs for {found.terms.years:g}; "
        "waiting for spot capacity is not counted",
    ]


def _stages(found: Sequence[ScaleUpStage]) -> list[RenderableType]:
    lines: list[RenderableType] = [
        Text("In stages; go on when a stage has shown (FILE: this plan with --output yaml)", style="bold")
    ]
    commands = [*(f"rightsizer probe FILE --gpus {stage.gpus}" for stage in found[:-1]), "the plan itself"]
    for i, (stage, command) in enumerate(zip(found, commands, strict=True), 1):
        held = f"{stage.gpus:,} GPU{'s' if stage.gpus > 1 else ''} for {format_duration(stage.wall_s)}"
        cost = "" if stage.usd is None else f", {format_usd(stage.usd)}"
        lines.append(Text(f"{i}. {stage.name}: {held}{cost}; {command}"))
        lines += [Text(f"   - {shown}") for shown in stage.must_show]
    return lines


def _assumptions(found: OwnershipComparison) -> list[RenderableType]:
    """Every input with its date and source."""
    lines = [
        f"{one.name}={one.value:.6g} {one.unit} ({one.date}{', ' if one.date else ''}{one.source})"
        for one in found.terms.assumptions
    ]
    return [Text("Assumed; change with --own NAME=VALUE", style="bold"), *map(Text, lines)]

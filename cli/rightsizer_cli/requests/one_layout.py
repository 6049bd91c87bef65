"""One stated layout, priced, whether it fits or not."""

from dataclasses import replace
from pathlib import Path

from rightsizer_cli.requests.flags import HardwareFlags, JobFlags, LayoutFlags
from rightsizer_cli.requests.inputs import calibrated, read
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.domain.framework import Framework
from rightsizer_engine.domain.layout import Layout, Sharding
from rightsizer_engine.domain.workload import Recompute
from rightsizer_engine.estimate.memory.device_memory import Verdict
from rightsizer_engine.search.pricing.layout_space import domain_gpus
from rightsizer_engine.search.pricing.options import price_layout
from rightsizer_engine.search.types import Option, Request
from rightsizer_engine.values import immutable

_ANY_TOKENS = "1T"
"""Placeholder for a missing --tokens; figures that depend on it are not printed."""

_SHARDINGS = {s.name.lower(): s for s in Sharding}


@immutable
class Priced:
    """One layout of a request, priced, and whether it fits."""

    request: Request
    option: Option
    fits: Verdict


def is_whole_run(file: Path | None, job: JobFlags) -> bool:
    """Whether the run's tokens are known, and not only its step."""
    return file is not None or any(said is not None for said in (job.tokens, job.examples, job.dataset))


def priced(
    file: Path | None, job: JobFlags, hardware: HardwareFlags, flags: LayoutFlags, *, ignore: bool
) -> Priced:
    """Predict one layout; without tokens the figures of a run mean nothing, those of a step do."""
    whole_run = is_whole_run(file, job)
    _, request = read(file, job if whole_run else replace(job, tokens=_ANY_TOKENS), hardware)
    request = calibrated(request, ignore=ignore)
    if len(request.clusters) != 1:
        names = ", ".join(cluster.gpu.name for cluster in request.clusters)
        raise OptionError("--gpu", value=names, remedy="name exactly one GPU type to estimate a layout")
    option, fits = price_layout(request, _layout_from(flags, request=request))
    return Priced(request=request, option=option, fits=fits)


def _layout_from(flags: LayoutFlags, *, request: Request) -> Layout:
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
        if kind not in _SHARDINGS:
            raise OptionError(
                "--sharding", value=flags.sharding, remedy=f"must be one of {', '.join(_SHARDINGS)}"
            )
        return _SHARDINGS[kind]
    if framework.can_zero3:
        return Sharding.ZERO3
    return Sharding.ZERO1 if framework.can_zero1 else Sharding.NONE

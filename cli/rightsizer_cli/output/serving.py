"""The GPUs that serve the trained model: `rightsizer plan --serve requests=20,input=1000,output=300`."""

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from rightsizer_cli.output.plan_output import Section
from rightsizer_cli.requests.usage_errors import OptionError
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.errors import InputError
from rightsizer_engine.serving import LOAD, Demand, ModelTooLarge, ServingPlan, serve
from rightsizer_engine.units import format_bytes, format_count, format_usd

if TYPE_CHECKING:
    from rightsizer_cli.output.documents.plan import ServingDocument

_GIB = 2.0**30


def section(network: Architecture, cluster: Cluster, demand: Demand) -> Section:
    """The part of the command's output below the plan, and `serving` of the JSON."""
    try:
        found = serve(network, cluster, demand)
    except InputError as error:
        raise OptionError("--serve", value=error.value, remedy=error.remedy) from None
    title = Text("Serving it (a first estimate)", style="bold")
    lines = _too_large(found) if isinstance(found, ModelTooLarge) else _lines(found)
    return Section(parts=[Group(title, *map(Text, lines))], document={"serving": _document(found)})


def _too_large(found: ModelTooLarge) -> list[str]:
    size = format_bytes(found.weights_bytes)
    return [
        f"{size} of weights and one sequence do not fit on 64 {found.cluster.gpu.name}; try bits=8 or bits=4"
    ]


def _lines(found: ServingPlan) -> list[str]:
    """The replicas, their assumptions, and the rates of one user."""
    one, demand, cluster = found.replica, found.demand, found.cluster
    price = cluster.price_usd_per_gpu_h
    cost = "" if price is None else f", {format_usd(price * found.gpus)} an hour"
    tokens = demand.requests_per_s * demand.output_tokens
    return [
        f"{found.gpus:,} {cluster.gpu.name} ({found.replicas} x {one.gpus}){cost} for"
        f" {demand.requests_per_s:g} requests/s of {demand.input_tokens} tokens in,"
        f" {demand.output_tokens} out ({format_count(tokens)} tokens/s), at {LOAD:.0%} load",
        f"A replica of {one.gpus}: weights {format_bytes(one.weights_bytes)} in {demand.weight_bits} bits,"
        f" {format_bytes(one.sequence_bytes)} of cache a sequence, {one.sequences:,} sequences at once,"
        f" {format_count(one.output_tokens_per_s)} tokens/s at most",
        f"A user: first token after {1e3 * one.prefill_s:.0f} ms and the queue,"
        f" then {1.0 / one.step_s:.0f} tokens/s at that load",
    ]


def _document(found: ServingPlan | ModelTooLarge) -> "ServingDocument":
    from rightsizer_cli.output.documents.plan import ServingDocument

    if isinstance(found, ModelTooLarge):
        return ServingDocument(feasible=False)
    one, demand = found.replica, found.demand
    price = found.cluster.price_usd_per_gpu_h
    return ServingDocument(
        feasible=True,
        gpus=found.gpus,
        gpu_type=found.cluster.gpu.name,
        replicas=found.replicas,
        gpus_per_replica=one.gpus,
        usd_per_hour=None if price is None else price * found.gpus,
        load=LOAD,
        requests_per_second=demand.requests_per_s,
        input_tokens=demand.input_tokens,
        output_tokens=demand.output_tokens,
        weight_bits=demand.weight_bits,
        cache_bits=demand.cache_bits,
        weights_gib=one.weights_bytes / _GIB,
        cache_bytes_per_token=found.cache_bytes_per_token,
        cache_mib_per_sequence=one.sequence_bytes / 2.0**20,
        sequences_per_replica=one.sequences,
        prefill_seconds=one.prefill_s,
        seconds_per_token=one.step_s,
        requests_per_second_per_replica=one.requests_per_s,
        output_tokens_per_second_per_replica=one.output_tokens_per_s,
    )

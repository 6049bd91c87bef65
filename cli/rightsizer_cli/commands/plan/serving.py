"""The GPUs that serve the trained model: `rightsizer plan --serve requests=20,input=1000,output=300`."""

from collections.abc import Callable

from rich.console import Group
from rich.text import Text

from rightsizer.domain.architecture import Architecture
from rightsizer.domain.hardware import Cluster
from rightsizer.errors import InputError
from rightsizer.serving import LOAD, Demand, Service, TooLarge, serve
from rightsizer.units import format_bytes, format_count, format_usd
from rightsizer_cli.plan_output import Section
from rightsizer_cli.usage_errors import OptionError

__all__ = ["parse", "section"]

_NAMES = {
    "requests": "requests_per_s",
    "input": "input_tokens",
    "output": "output_tokens",
    "bits": "weight_bits",
    "cache": "cache_bits",
}
_REMEDY = "write requests=RATE, and if you like input=, output= (tokens), bits= (16, 8, 4) and cache= (16, 8)"
_GIB = 2.0**30


def parse(text: str) -> Demand:
    """The demand in the flag's words."""
    given: dict[str, float] = {}
    for word in text.split(","):
        name, _, value = (part.strip() for part in word.partition("="))
        read: Callable[[str], float] = float if name == "requests" else int
        try:
            given[_NAMES[name]] = read(value)
        except (KeyError, ValueError):
            raise OptionError("--serve", value=word, remedy=_REMEDY) from None
    if "requests_per_s" not in given:
        raise OptionError("--serve", value=text, remedy=_REMEDY)
    try:
        return Demand(**given)  # type: ignore[arg-type]
    except InputError as error:
        raise OptionError("--serve", value=error.value, remedy=f"{error.field}: {error.remedy}") from None


def section(network: Architecture, cluster: Cluster, demand: Demand) -> Section:
    """What the command prints below the plan, and `serving` of the JSON."""
    try:
        found = serve(network, cluster, demand)
    except InputError as error:
        raise OptionError("--serve", value=error.value, remedy=error.remedy) from None
    title = Text("Serving it (a first estimate)", style="bold")
    lines = _too_large(found) if isinstance(found, TooLarge) else _lines(found)
    document = {"feasible": False} if isinstance(found, TooLarge) else _document(found)
    return Section(
        parts=[Group(title, *map(Text, lines))], document={"serving": {"firstEstimate": True} | document}
    )


def _too_large(found: TooLarge) -> list[str]:
    size = format_bytes(found.weights_bytes)
    return [
        f"{size} of weights and one sequence do not fit on 64 {found.cluster.gpu.name}; try bits=8 or bits=4"
    ]


def _lines(found: Service) -> list[str]:
    """The answer, what it rests on, and what one user sees."""
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


def _document(found: Service) -> dict[str, object]:
    one, demand = found.replica, found.demand
    price = found.cluster.price_usd_per_gpu_h
    return {
        "feasible": True,
        "gpus": found.gpus,
        "gpuType": found.cluster.gpu.name,
        "replicas": found.replicas,
        "gpusPerReplica": one.gpus,
        "usdPerHour": None if price is None else price * found.gpus,
        "load": LOAD,
        "requestsPerSecond": demand.requests_per_s,
        "inputTokens": demand.input_tokens,
        "outputTokens": demand.output_tokens,
        "weightBits": demand.weight_bits,
        "cacheBits": demand.cache_bits,
        "weightsGiB": one.weights_bytes / _GIB,
        "cacheBytesPerToken": found.cache_bytes_per_token,
        "cacheMiBPerSequence": one.sequence_bytes / 2.0**20,
        "sequencesPerReplica": one.sequences,
        "prefillSeconds": one.prefill_s,
        "secondsPerToken": one.step_s,
        "requestsPerSecondPerReplica": one.requests_per_s,
        "outputTokensPerSecondPerReplica": one.output_tokens_per_s,
    }

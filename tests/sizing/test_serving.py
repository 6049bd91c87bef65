"""Serving: caches from the papers, published throughput within a wide band, the direction of every term."""

import dataclasses
import itertools
import math

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.errors import InputError
from rightsizer_engine.serving import Demand, ModelTooLarge, ServingPlan, replica, sequence_bytes, serve

ONE = Demand(requests_per_s=20)
PUBLISHED = {
    ("Llama 3.1 8B", "H100", 1): {
        (128, 128): 28312,
        (1000, 1000): 15220,
        (2048, 128): 3450,
        (5000, 500): 3459,
    },
    ("Llama 3.1 8B", "H200", 1): {(128, 2048): 26221, (2048, 2048): 12194, (20000, 2000): 1804},
    ("Llama 3.3 70B", "H100", 2): {(128, 2048): 6651, (1000, 1000): 4205, (2048, 128): 762, (5000, 500): 898},
    ("Llama 3.1 405B", "H200", 8): {(128, 2048): 5348, (1000, 1000): 3330, (2048, 2048): 2948},
    ("Qwen3 235B-A22B", "H200", 8): {(128, 128): 30429, (1000, 1000): 23789, (2048, 2048): 16672},
    ("Llama 4 Scout 17B-16E", "H200", 4): {(128, 2048): 34316, (1000, 1000): 21636, (5000, 500): 4605},
}
"""Output tokens/s by tokens in and out, 8 bits: TensorRT-LLM 1.0, docs/source/performance/perf-overview."""


@pytest.mark.parametrize("run", PUBLISHED, ids=str)
def test_throughput_is_within_a_factor_of_two_of_what_tensorrt_llm_publishes(
    run: tuple[str, str, int],
) -> None:
    model, gpu, gpus = run
    for (read, written), measured in PUBLISHED[run].items():
        demand = Demand(
            requests_per_s=1, input_tokens=read, output_tokens=written, weight_bits=8, cache_bits=8
        )
        found = replica(lookup.model(model), lookup.cluster(gpu), demand, gpus)
        assert found is not None
        assert abs(math.log2(found.output_tokens_per_s / measured)) < 1, (read, written)


@pytest.mark.parametrize(
    ("model", "bytes_a_token"),
    [
        ("Llama 3.1 8B", 2 * 8 * 128 * 32 * 2),
        ("Llama 2 7B", 2 * 32 * 128 * 32 * 2),
        ("DeepSeek-V3 671B", (512 + 64) * 61 * 2),
        ("Qwen3-Next 80B-A3B", 2 * 2 * 256 * 12 * 2),
        ("Mamba-2 2.7B", 0),
    ],
)
def test_the_cache_of_a_token_is_that_of_the_attention_layers(model: str, bytes_a_token: int) -> None:
    network = lookup.model(model)
    assert sequence_bytes(network, 9000) - sequence_bytes(network, 8000) == pytest.approx(
        1000 * bytes_a_token
    )


def test_a_layer_with_a_window_keeps_the_window() -> None:
    network = lookup.model("Gemma 3 27b")
    full = network.layers - network.sliding_layers
    width = 2 * network.kv_heads * network.head_dim * 2
    assert sequence_bytes(network, 2**17) == width * (full * 2**17 + network.sliding_layers * 1024)


@pytest.mark.parametrize("model", ["Qwen3-Next 80B-A3B", "Nemotron-H 8B"])
def test_a_linear_layer_keeps_a_state_of_constant_size(model: str) -> None:
    network = lookup.model(model)
    assert sequence_bytes(network, 0) == 2 * network.linear_layers * network.linear_state > 0


def test_the_replicas_meet_the_demand_below_full_load() -> None:
    found = serve(lookup.model("Llama 3.1 70B"), lookup.cluster("H100"), ONE)
    assert isinstance(found, ServingPlan)
    assert found.replicas * found.replica.requests_per_s * 0.8 >= ONE.requests_per_s
    assert found.gpus == found.replicas * found.replica.gpus


@pytest.mark.parametrize(
    ("field", "less", "more"),
    [("requests_per_s", 5.0, 500.0), ("input_tokens", 100, 8000), ("output_tokens", 50, 4000)],
)
def test_more_work_never_takes_fewer_gpus(field: str, less: float, more: float) -> None:
    network, cluster = lookup.model("Llama 3.1 8B"), lookup.cluster("L40S")
    small, large = (
        serve(network, cluster, dataclasses.replace(ONE, **{field: value})) for value in (less, more)
    )
    assert isinstance(small, ServingPlan)
    assert isinstance(large, ServingPlan)
    assert small.gpus <= large.gpus


def test_fewer_bits_take_less_memory_and_no_more_gpus() -> None:
    network, cluster = lookup.model("Llama 3.1 70B"), lookup.cluster("H100")
    found = [serve(network, cluster, dataclasses.replace(ONE, weight_bits=bits)) for bits in (16, 8)]
    assert all(isinstance(one, ServingPlan) for one in found)
    wide, narrow = (one for one in found if isinstance(one, ServingPlan))
    assert narrow.replica.weights_bytes == wide.replica.weights_bytes / 2
    assert narrow.gpus <= wide.gpus


def test_a_model_too_large_for_any_replica_has_its_own_result() -> None:
    assert isinstance(serve(lookup.model("Kimi K2 1T"), lookup.cluster("T4"), ONE), ModelTooLarge)


@pytest.mark.parametrize(
    "wrong", [{"requests_per_s": 0.0}, {"requests_per_s": math.nan}, {"input_tokens": 0}, {"weight_bits": 5}]
)
def test_a_demand_out_of_bounds_is_named(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="serve"):
        Demand(**({"requests_per_s": 1.0} | wrong))  # type: ignore[arg-type]


def test_an_encoder_is_refused() -> None:
    with pytest.raises(InputError, match="decoders"):
        serve(lookup.model("BERT-base"), lookup.cluster("A100"), ONE)


DECODERS = [network for network in lookup.models() if network.family == "decoder"]
SERVING_GPUS = ("H100", "RTX 4090", "MI300X")


def test_every_decoder_has_an_answer() -> None:
    """For one GPU type each, in turn."""
    for network, gpu in zip(DECODERS, itertools.cycle(SERVING_GPUS), strict=False):
        found = serve(network, lookup.cluster(gpu), ONE)
        assert isinstance(found, ModelTooLarge) or found.gpus >= 1, network.name


@pytest.mark.slow
def test_every_decoder_has_an_answer_for_every_gpu_type() -> None:
    for network, gpu in itertools.product(DECODERS, SERVING_GPUS):
        found = serve(network, lookup.cluster(gpu), ONE)
        assert isinstance(found, ModelTooLarge) or found.gpus >= 1, network.name

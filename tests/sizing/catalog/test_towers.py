"""Vision-language models: the tower and the projector beside the decoder."""

import dataclasses
import json
from pathlib import Path

import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.catalog.huggingface import from_config
from rightsizer_engine.domain.architecture import encoder_parameters
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.flop import flop_per_token
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Recompute, Workload
from rightsizer_engine.estimate.memory import device_memory
from rightsizer_engine.estimate.step import step_time

CONFIGS = json.loads((Path(__file__).parent / "configs.json").read_text("utf-8"))
TOWERS = [name for name in CONFIGS if "vision_config" in CONFIGS[name]]
SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "image_size": 896,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "patch_size": 14,
}
GEMMA = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "vision_config": SIGLIP,
}


def test_gemma_3_has_the_parameters_of_its_checkpoint_with_the_tower() -> None:
    network = from_config(GEMMA)
    assert network.parameters_total == pytest.approx(4_300_079_472, rel=1e-5)
    assert (network.encoder_layers, network.encoder_tokens) == (27, 64 * 64)


@pytest.mark.parametrize("name", TOWERS)
def test_a_token_costs_more_with_an_image_in_its_sequence(name: str) -> None:
    whole = lookup.model(name)
    text = dataclasses.replace(whole, encoder_layers=0)
    assert float(flop_per_token(whole, 4096)) > float(flop_per_token(text, 4096))
    assert whole.parameters_total - text.parameters_total == pytest.approx(
        float(encoder_parameters(whole)) + whole.encoder_layers * whole.encoder_per_layer_parameters
    )


def held_and_seconds(name: str, layers: int | None, layout: Layout) -> tuple[float, float]:
    network = lookup.model(name)
    network = network if layers is None else dataclasses.replace(network, encoder_layers=layers)
    workload = Workload(tokens=1e9, sequence_tokens=4096, global_batch_sequences=16)
    cases = Cases.of(
        Case(
            architecture=network,
            workload=workload,
            cluster=lookup.cluster("H100"),
            framework=lookup.framework("megatron-core"),
            layout=layout,
        )
    )
    return float(device_memory.estimate(cases).device_bytes), float(step_time.estimate(cases).total_s)


@pytest.mark.parametrize("recompute", [Recompute.NONE, Recompute.FULL], ids=["stored", "recomputed"])
def test_the_tower_adds_its_own_size_not_that_of_as_many_decoder_layers(recompute: Recompute) -> None:
    layout = Layout(tp=2, micro_batches=16, recompute=recompute)
    name = "Qwen2.5-VL 7B"
    with_tower, without = (held_and_seconds(name, layers, layout) for layers in (None, 0))
    decoder = lookup.model(name)
    as_layers = decoder.encoder_layers / decoder.layers * without[0]
    assert 0 < with_tower[0] - without[0] < 0.5 * as_layers
    assert 1.0 < with_tower[1] / without[1] < 1.5


def test_llavas_config_leaves_out_its_language_model() -> None:
    network = from_config(CONFIGS["LLaVA-1.5 7B"])
    assert (network.layers, network.hidden, network.ffn_hidden) == (32, 4096, 11008)

"""Which attention kernel runs where, and how fast it is relative to others."""

from dataclasses import replace

import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.architecture import Architecture
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.linear import delta_rule_flop, lightning_flop
from rightsizer_engine.domain.workload import AttentionKernel, Workload
from rightsizer_engine.estimate.step import step_time

K = AttentionKernel


def seconds(kernel=K.AUTO, *, gpu="H100-SXM5-80GB", profile="fsdp2", year=2025.0, sequence=65536, **changes):
    """Attention's seconds in a step of an 8B model on one GPU."""
    work = Workload(
        tokens=1e9, sequence_tokens=sequence, global_batch_sequences=1, attention=kernel, library_year=year
    )
    case = Case(
        architecture=lookup.model("meta-llama/Llama-3.1-8B"),
        workload=replace(work, **changes),
        cluster=lookup.cluster(gpu, gpus_per_node=1),
        framework=framework(profile),
        layout=Layout(micro_batch=1, micro_batches=1),
    )
    return float(np.asarray(step_time.estimate(Cases.of(case)).attention_s))


@pytest.mark.parametrize(
    ("gpu", "new", "least", "most"),
    [
        ("H100-SXM5-80GB", K.FLASH_3, 1.25, 1.9),  # 616 against 335 TFLOP/s (arXiv:2407.08608, figure 5)
        ("B200-SXM-180GB", K.FLASH_4, 2.5, 4.0),  # 1,418 against 362 TFLOP/s
        ("A100-SXM4-80GB", K.FLASH_3, 1.0, 1.0),  # written for Hopper; elsewhere the second runs
        ("A100-SXM4-80GB", K.CUDNN, 1.0, 1.0),
        ("B200-SXM-180GB", K.FLASH_3, 1.0, 1.0),
    ],
)
def test_kernels_of_the_gpus_own_generation_are_faster_than_flash_attention_2(gpu, new, least, most):
    ratio = seconds(K.FLASH_2, gpu=gpu) / seconds(new, gpu=gpu)
    assert least <= ratio <= most


@pytest.mark.parametrize(
    ("gpu", "year", "kernel"),
    [
        ("A100-SXM4-80GB", 2023.5, K.FLASH_1),
        ("A100-SXM4-80GB", 2025.0, K.FLASH_2),
        ("A100-SXM4-80GB", 0.0, K.FLASH_2),
        ("H100-SXM5-80GB", 2025.0, K.FLASH_2),
        ("H100-SXM5-80GB", 2026.5, K.CUDNN),
        ("H100-SXM5-80GB", 0.0, K.CUDNN),
        ("B200-SXM-180GB", 2025.0, K.FLASH_2),
        ("B200-SXM-180GB", 0.0, K.CUDNN),
    ],
)
def test_torch_picks_the_kernel_by_its_release_and_the_gpu(gpu, year, kernel):
    assert seconds(K.SDPA, gpu=gpu, year=year) == seconds(kernel, gpu=gpu, year=year)


@pytest.mark.parametrize(
    ("profile", "gpu", "kernel"),
    [
        ("megatron-core", "H100-SXM5-80GB", K.CUDNN),
        ("axolotl", "H100-SXM5-80GB", K.FLASH_2),
        ("hf-trainer", "H100-SXM5-80GB", K.SDPA),
        ("llm-foundry", "A100-SXM4-80GB", K.FLASH_1),
        ("torchtitan", "B200-SXM-180GB", K.CUDNN),
        ("torchtitan", "H100-SXM5-80GB", K.FLASH_2),
        ("megatron-lm-2022", "A100-SXM4-80GB", K.EAGER),
    ],
)
def test_a_framework_has_its_usual_kernel(profile, gpu, kernel):
    assert seconds(profile=profile, gpu=gpu) == seconds(kernel, profile=profile, gpu=gpu)


def test_a_framework_of_unknown_name_runs_between_two_kernels_unless_one_is_stated():
    between, old, new = (seconds(k, profile="unknown-parallel") for k in (K.AUTO, K.FLASH_2, K.CUDNN))
    assert new < between < old


GATED_DELTA = delta_rule_flop(heads=1, keys=128, values=128, chunk=64)
RETENTION = lightning_flop(heads=1, keys=128, values=128, chunk=64)


@pytest.mark.parametrize(
    ("gpu", "flop", "shape", "published_ms"),
    [
        ("GB200", GATED_DELTA, (1, 8192, 96), 4.738),
        ("GB200", GATED_DELTA, (2, 16384, 16), 3.616),
        ("GB200", GATED_DELTA, (4, 4096, 64), 5.964),
        ("GB200", RETENTION, (1, 8192, 96), 2.618),
        ("H800-SXM5-80GB", GATED_DELTA, (1, 8192, 96), 3.7 * 2.033),
        ("H800-SXM5-80GB", GATED_DELTA, (2, 16384, 16), 3.7 * 1.342),
    ],
)
def test_a_scan_takes_about_as_long_as_published_kernels(gpu, flop, shape, published_ms):
    """Forward and backward: flash-linear-attention's README; PaddlePaddle/flash-attention#133 (forward)."""
    batch, sequence, heads = shape
    layer = Architecture(
        name="one scan",
        layers=1,
        attention_free_layers=1,
        linear_layers=1,
        linear_scan_flop=heads * flop,
        hidden=heads * 128,
        ffn_hidden=heads * 128,
        heads=heads,
        kv_heads=heads,
        head_dim=128,
        vocab=128,
    )
    case = Case(
        architecture=layer,
        workload=Workload(tokens=1e9, sequence_tokens=sequence, global_batch_sequences=batch),
        cluster=lookup.cluster(gpu, gpus_per_node=1),
        framework=framework("fsdp2"),
        layout=Layout(micro_batch=batch),
    )
    scan_ms = 1e3 * float(np.asarray(step_time.estimate(Cases.of(case)).attention_s))
    assert 0.5 < scan_ms / published_ms < 2.0

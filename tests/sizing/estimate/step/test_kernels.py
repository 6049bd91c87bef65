from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.columns import Columns
from rightsizer_engine.domain.hardware import Cluster
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Precision, Workload
from rightsizer_engine.estimate.parameters import load_curves, load_step_time
from rightsizer_engine.estimate.step import kernels

P = load_curves()
A100: Any = SimpleNamespace(hbm_bytes_per_s=np.asarray(1.7e12), multiprocessors=np.asarray(108))
SIZES = st.integers(min_value=16, max_value=65536)


def case(cluster: Cluster, **workload: Any) -> Case:
    return Case(
        architecture=lookup.model("Llama 3.1 8B"),
        workload=Workload(tokens=1e9, sequence_tokens=4096, global_batch_sequences=8, **workload),
        cluster=cluster,
        framework=lookup.framework("megatron-core"),
        layout=Layout(),
    )


def matmul(m: int, n: int, k: int, flop_per_s: float = 240e12) -> float:
    m_, n_, k_ = (np.asarray(float(x)) for x in (m, n, k))
    rate, half = np.asarray(flop_per_s), np.asarray(130.0)
    return float(kernels.matmul_s(m_, n_, k_, flop_per_s=rate, half_k=half, rates=A100, parameters=P))


@given(SIZES, SIZES, SIZES)
def test_a_matmul_is_never_faster_than_its_plateau(m: int, n: int, k: int) -> None:
    assert matmul(m, n, k) >= 2 * m * n * k / 240e12 * 0.999


@given(SIZES, SIZES, SIZES)
def test_a_deeper_matmul_is_never_faster(m: int, n: int, k: int) -> None:
    assert matmul(m, n, k + 64) >= matmul(m, n, k)


@given(SIZES, SIZES, SIZES, st.floats(min_value=1e12, max_value=1e15))
def test_more_flop_per_s_is_never_slower(m: int, n: int, k: int, rate: float) -> None:
    assert matmul(m, n, k, rate * 1.5) <= matmul(m, n, k, rate) * (1 + 1e-12)


@given(SIZES, SIZES)
def test_wave_efficiency_is_a_share(m: int, n: int) -> None:
    share = kernels.wave_efficiency(np.asarray(m), np.asarray(n), np.asarray(108), P)
    assert 0 < float(share) <= 1


def test_a_thin_matmul_is_bound_by_memory() -> None:
    m, n, k = 16, 16384, 16384
    assert matmul(m, n, k) == pytest.approx(2.0 * (m * k + k * n + m * n) / 1.7e12, rel=0.2)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("V100-SXM2-16GB", "volta"),
        ("A100-SXM4-80GB", "ampere"),
        ("H200-SXM-141GB", "hopper"),
        ("GB300", "blackwell"),
        ("MI300X", "cdna"),
        ("RTX 4090", "gddr"),
        ("L40S", "gddr"),
        ("RTX 5090", "gddr"),
        ("A40", "gddr"),
    ],
)
def test_a_part_belongs_to_its_generation(name: str, expected: str) -> None:
    code = kernels.generation(Columns.of(lookup.gpu(name)))
    assert kernels.GENERATIONS[int(code)] == expected


def test_every_catalogued_gpu_has_a_generation() -> None:
    codes = [int(kernels.generation(Columns.of(gpu))) for gpu in lookup.gpus()]
    assert set(codes) <= set(range(len(kernels.GENERATIONS)))


@pytest.mark.parametrize(
    ("m", "n", "k", "measured_s"),
    [(4096, 24576, 8192, 7306e-6), (4096, 8192, 8192, 2468e-6)],
    ids=["wide", "square"],
)
def test_a_measured_a100_matmul_is_met(m: int, n: int, k: int, measured_s: float) -> None:
    """microsoft/vidur data/profiling/compute/a100/Qwen/Qwen-72B/mlp.csv@7d47513."""
    assert matmul(m, n, k, 312e12 * P.matmul_plateau_ampere) == pytest.approx(measured_s, rel=0.08)


@pytest.mark.parametrize(
    ("name", "generation"),
    [
        *(("V100-SXM2-32GB", "volta"), ("A100-SXM4-80GB", "ampere"), ("H100-SXM5-80GB", "hopper")),
        *(("B200", "blackwell"), ("MI250X", "cdna"), ("MI300X", "cdna"), ("MI355X", "cdna"), ("L4", "gddr")),
    ],
)
def test_a_gpu_uses_the_curves_of_its_generation(name: str, generation: str) -> None:
    gpu: Any = lookup.gpu(name)
    assert kernels.GENERATIONS[int(kernels.generation(gpu))] == generation


def sustained(**limits: float) -> float:
    cases = Cases.of(case(lookup.cluster("GH200", **limits)))
    return float(kernels.rates(cases, load_step_time()).matmul16_flop_per_s)


def test_a_superchip_of_680_w_leaves_its_gpu_550_w() -> None:
    exponent = load_step_time().power_exponent
    assert sustained(power_w=680) / sustained() == pytest.approx((550 / 770) ** exponent)


def share_of_peak(name: str, precision: Precision = Precision.FP16, **hardware: float) -> float:
    found = Cases.of(case(lookup.cluster(name, **hardware), precision=precision))
    rates = kernels.rates(found, load_step_time())
    return float(rates.matmul_flop_per_s) / lookup.gpu(name).fp16_flop_per_s


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("T4", 0.33, 0.45),  # 24 of 65 TFLOP/s at 70 W: forums.developer.nvidia.com 264462
        ("L4", 0.25, 0.47),  # at most 57 of 121 in large matmuls at 72 W
        ("RTX 4090", 0.9, 1.0),  # 165 of 165: half rate, so that power does not limit it
        ("RTX 3090", 0.9, 1.0),
        ("RTX PRO 6000", 0.35, 0.7),  # at most 350 to 387 of 500
        ("H20", 0.7, 0.96),  # at most 142 of 148: too few multiprocessors to meet its power limit
        ("H100", 0.6, 0.7),
        ("H100-PCIe-80GB", 0.48, 0.6),
    ],
)
def test_a_low_power_card_never_reaches_its_peak(name: str, least: float, most: float) -> None:
    assert least < share_of_peak(name) < most


def test_a_b200_loses_to_a_gb200_as_its_measured_matmuls_do() -> None:
    b200, gb200 = (
        share_of_peak(name, Precision.FP8) * lookup.gpu(name).fp16_flop_per_s for name in ("B200", "GB200")
    )
    assert b200 / gb200 == pytest.approx(3432.5 / 3615.6)


def test_half_the_power_costs_an_rtx_pro_6000_a_third() -> None:
    assert share_of_peak("RTX PRO 6000", power_w=300) / share_of_peak("RTX PRO 6000") == pytest.approx(
        0.637, abs=0.01
    )

"""The correction by measured runs, computed by hand for one run and for two."""

import math
from dataclasses import replace

import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.estimate.correction import correct
from rightsizer_engine.estimate.evidence import Calibration, Evidence, Quantity, Residual, noise_ln
from rightsizer_engine.estimate.parameters import SHARES, load_calibration
from rightsizer_engine.estimate.regression import covariances

CLUSTER = lookup.cluster("H100-SXM5-80GB")
MODEL = lookup.model("Llama 3.1 8B")
SHARE = dict(zip(SHARES, (0.1, 0.1, 0.1, 0.1, 0.2, 0.3), strict=True))
DP8 = Layout(dp=8)
P = load_calibration().replace(
    **{f"step_share_{name}": share for name, share in SHARE.items()},
    step_in_common=1.0, degrees_of_freedom=1e12, step_startup=2.0, step_between_runs=0.03,
)  # fmt: skip


def run(ln=0.1, noise=0.05, **changes):
    facts = {
        "run": "a", "framework": "torchtitan", "gpu": CLUSTER.gpu.name, "model": MODEL.name,
        "sequence_tokens": 4096, "layout": Layout(dp=8), "steps": 100,
    }  # fmt: skip
    return Evidence(**facts | changes, step=Residual(ln=ln, sigma=0.1, noise=noise))


def correction(*evidence, layout=DP8, sigma=0.1, name="torchtitan"):
    case = Case(
        architecture=MODEL,
        workload=Workload(tokens=1e9, sequence_tokens=4096, global_batch_sequences=64),
        cluster=CLUSTER,
        framework=framework(name),
        layout=layout,
    )
    return correct(Calibration(evidence=evidence), Cases.of(case), np.asarray(sigma), Quantity.STEP, P)


@pytest.mark.parametrize(
    ("layout", "name", "shared"),
    [
        (Layout(dp=8), "torchtitan", 0.9),  # all but what belongs to one run
        (Layout(dp=16, micro_batches=4), "torchtitan", 0.9),  # each GPU does the same
        (Layout(dp=8, micro_batch=2), "torchtitan", 0.6),  # not the configuration
        (Layout(tp=8), "torchtitan", 0.5),  # not the family either
        (Layout(dp=8), "megatron-core", 0.1),  # the GPU alone
    ],
    ids=["itself", "another size", "another micro-batch", "another family", "another framework"],
)
def test_one_run_moves_a_prediction_by_what_both_share(layout, name, shared):
    """mean = shared x value / (1 + (noise / sigma)^2), variance = 1 - shared^2 / (1 + (noise / sigma)^2)."""
    found = correction(run(), layout=layout, name=name)
    own = 1 + (0.05 / 0.1) ** 2
    assert float(found.factor) == pytest.approx(math.exp(shared * 1.0 / own * 0.1), rel=1e-6)
    assert float(found.sigma_factor) == pytest.approx(math.sqrt(1 - shared**2 / own), rel=1e-6)


def test_two_runs_of_one_configuration_count_as_their_mean():
    """Solved by hand: [a b; b a] with a = 1.25, b = 0.9: mean = 2 x 0.9 / (a + b) of their mean value."""
    found = correction(run(0.1), run(0.2, run="b"))
    assert float(found.factor) == pytest.approx(math.exp(0.9 / (1.25 + 0.9) * (1.0 + 2.0) * 0.1), rel=1e-6)


def test_noise_has_three_independent_parts():
    """0.04 / sqrt(4), 2 / 4 of a start-up, 0.03 between runs; no steps count as one."""
    assert noise_ln(4, 0.04, P) == pytest.approx(math.sqrt(0.02**2 + 0.5**2 + 0.03**2))
    assert noise_ln(0, 0.04, P) == pytest.approx(math.sqrt(0.04**2 + 2.0**2 + 0.03**2))


def test_covariances_mark_for_every_share_the_runs_in_common():
    runs = (
        run(),
        run(layout=Layout(dp=16, micro_batch=2)),
        run(gpu="A100"),
        run(framework="megatron-core", model="m"),
    )
    shared = covariances(runs)
    assert shared.shape == (len(SHARES), 4, 4)
    first = {name: list(shared[i, 0]) for i, name in enumerate(SHARES)}
    assert first == {
        "gpu": [1, 1, 0, 1],
        "framework": [1, 1, 1, 0],
        "stack": [1, 1, 0, 0],
        "family": [1, 1, 0, 0],
        "model": [1, 1, 0, 0],
        "configuration": [1, 0, 0, 0],
    }


def test_stacked_cases_are_corrected_row_by_row():
    case = Case(
        architecture=MODEL,
        workload=Workload(tokens=1e9, sequence_tokens=4096, global_batch_sequences=64),
        cluster=CLUSTER,
        framework=framework("torchtitan"),
        layout=Layout(dp=8),
    )
    rows = [
        case,
        replace(case, layout=Layout(dp=16, micro_batch=2)),
        replace(case, framework=framework("megatron-core")),
    ]
    found = correct(Calibration(evidence=(run(),)), Cases.stack(rows), np.asarray(0.1), Quantity.STEP, P)
    assert found.factor == pytest.approx([math.exp(s / 1.25 * 0.1) for s in (0.9, 0.6, 0.1)], rel=1e-6)

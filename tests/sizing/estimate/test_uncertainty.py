import dataclasses

import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Workload
from rightsizer_engine.estimate.step.host_time import HOST_CLASSES, host_class
from rightsizer_engine.estimate.uncertainty import (
    Z_80,
    coefficients,
    deviation,
    memory_sigma,
    probability_within,
    quantile,
    step_sigma,
    z_quantile,
)

KNOWN = Case(
    architecture=lookup.model("Llama-3-8B"),
    workload=Workload(tokens=1e9, sequence_tokens=4096, global_batch_sequences=64),
    cluster=lookup.cluster("H100-SXM5-80GB"),
    framework=framework("torchtitan"),
    layout=Layout(dp=8),
)
WITHHELD = dataclasses.replace(KNOWN, framework=framework("unknown-sharded"))
WIDTHS = pytest.mark.parametrize("width", [step_sigma, memory_sigma], ids=["step time", "memory"])


@WIDTHS
def test_an_unknown_framework_widens_the_interval(width):
    assert width(Cases.of(WITHHELD)) > width(Cases.of(KNOWN))


@WIDTHS
def test_widths_are_those_of_an_engine_not_of_a_guess(width):
    assert 0.02 < float(width(Cases.of(KNOWN))) < 0.3


@WIDTHS
def test_the_layout_does_not_change_the_width(width):
    many = dataclasses.replace(KNOWN, layout=Layout(dp=512, tp=8, pp=4))
    assert width(Cases.of(many)) == width(Cases.of(KNOWN))


def test_widths_come_one_per_case():
    assert memory_sigma(Cases.stack([KNOWN, WITHHELD])).shape == (2,)


@WIDTHS
def test_an_assumed_input_widens_the_interval_more_than_assumed_dimensions(width):
    inputs, dimensions = (
        dataclasses.replace(KNOWN, workload=dataclasses.replace(KNOWN.workload, **{flag: True}))
        for flag in ("assumed_inputs", "assumed_dimensions")
    )
    assert width(Cases.of(KNOWN)) < width(Cases.of(dimensions)) < width(Cases.of(inputs))


@pytest.mark.parametrize("quantity", ["step_time", "memory"])
def test_more_evidence_never_widens_and_none_is_as_good_as_a_constant_utilisation(quantity):
    terms = coefficients(quantity)
    found = deviation(np.asarray([0.0, 0.1, 1.0, 10.0]), terms)
    assert found[0] == pytest.approx(terms["nothing_ln"])
    assert list(found) == sorted(found, reverse=True)


def test_the_interval_holds_80_percent_of_a_population_of_two_widths():
    half = np.asarray([z_quantile(p) for p in np.linspace(0.0005, 0.9995, 1000)])
    errors = np.concatenate([0.1 * half, 0.17 * half])
    assert np.mean(np.abs(errors) <= Z_80 * 0.1) == pytest.approx(0.8, abs=0.005)


def test_quantiles_invert_the_distribution_and_its_tails_are_heavier_than_normal():
    assert probability_within(quantile(0.99)) == pytest.approx(0.99)
    assert quantile(0.99) / quantile(0.9) > z_quantile(0.99) / z_quantile(0.9)
    assert z_quantile(0.9) == pytest.approx(1.2816, abs=1e-4)


@pytest.mark.parametrize(
    ("year", "name"), [(0.0, "core"), (2023.9, "megatron"), (2024.0, "core"), (2024.9, "core")]
)
def test_an_unknown_framework_launches_as_the_megatron_of_its_year(year, name):
    unknown = dataclasses.replace(framework("megatron-core"), known=False)
    work = dataclasses.replace(KNOWN.workload, library_year=year)
    case = dataclasses.replace(KNOWN, framework=unknown, workload=work)
    assert HOST_CLASSES[int(host_class(Cases.of(case)))] == name

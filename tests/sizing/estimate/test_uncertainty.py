import dataclasses

import pytest

from rightsizer.catalog import lookup
from rightsizer.domain.cases import Case, Cases
from rightsizer.domain.framework import framework
from rightsizer.domain.layout import Layout
from rightsizer.domain.workload import Workload
from rightsizer.estimate.host_time import HOST_CLASSES, host_class
from rightsizer.estimate.uncertainty import features, memory_sigma, step_sigma, z_quantile

KNOWN = Case(
    architecture=lookup.model("Llama-3-8B"),
    workload=Workload(tokens=1e9, sequence_tokens=4096, global_batch_sequences=64),
    cluster=lookup.cluster("H100-SXM5-80GB"),
    framework=framework("torchtitan"),
    layout=Layout(dp=8),
)
WITHHELD = dataclasses.replace(KNOWN, framework=framework("unknown-sharded"))


@pytest.mark.parametrize("width", [step_sigma, memory_sigma], ids=["step time", "memory"])
def test_an_unknown_framework_widens_the_interval(width):
    assert width(Cases.of(WITHHELD)) > width(Cases.of(KNOWN))


@pytest.mark.parametrize("width", [step_sigma, memory_sigma], ids=["step time", "memory"])
def test_widths_are_those_of_an_engine_not_of_a_guess(width):
    assert 0.02 < float(width(Cases.of(KNOWN))) < 0.3


def test_widths_come_one_per_case():
    assert memory_sigma(Cases.stack([KNOWN, WITHHELD])).shape == (2,)


def test_features_are_what_is_known_of_the_case():
    found = {name: float(value) for name, value in features(Cases.of(WITHHELD)).items()}
    assert (found["unknown_framework"], found["many_nodes"], found["other_hardware"]) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize("width", [step_sigma, memory_sigma], ids=["step time", "memory"])
def test_an_assumed_input_widens_the_interval_more_than_assumed_dimensions(width):
    inputs, dimensions = (
        dataclasses.replace(KNOWN, workload=dataclasses.replace(KNOWN.workload, **{flag: True}))
        for flag in ("assumed_inputs", "assumed_dimensions")
    )
    assert width(Cases.of(KNOWN)) < width(Cases.of(dimensions)) < width(Cases.of(inputs))


def test_quantiles_are_the_normal_ones():
    assert z_quantile(0.9) == pytest.approx(1.2816, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "trainer"),
    [("hf-trainer", 1.0), ("deepspeed", 1.0), ("torchtitan", 0.0), ("megatron-core", 0.0)],
)
def test_trainers_and_deepspeed_widen_the_interval_alike(name, trainer):
    case = dataclasses.replace(KNOWN, framework=framework(name))
    assert float(features(Cases.of(case))["trainer"]) == trainer


@pytest.mark.parametrize(
    ("year", "name"), [(0.0, "core"), (2023.9, "megatron"), (2024.0, "core"), (2024.9, "core")]
)
def test_an_unknown_framework_launches_as_the_megatron_of_its_year(year, name):
    unknown = dataclasses.replace(framework("megatron-core"), known=False)
    work = dataclasses.replace(KNOWN.workload, library_year=year)
    case = dataclasses.replace(KNOWN, framework=unknown, workload=work)
    assert HOST_CLASSES[int(host_class(Cases.of(case)))] == name

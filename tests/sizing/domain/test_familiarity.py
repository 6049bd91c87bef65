"""The published runs like a request: counted by independent sources, never lowered by more of it."""

from dataclasses import replace

import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.familiarity import (
    Level,
    MeasuredRuns,
    RunTable,
    familiarity,
    generation,
    measured,
    measured_runs,
)
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Method, Precision, Workload

CASE = Case(
    architecture=lookup.model("Llama-3-8B"),
    workload=Workload(tokens=1e9, sequence_tokens=4096, global_batch_sequences=64),
    cluster=lookup.cluster("H100-SXM5-80GB"),
    framework=framework("torchtitan"),
    layout=Layout(dp=8),
)
SAME = MeasuredRuns(
    source="A", stack="torchtitan", family="fsdp", gpu="H100-SXM5-80GB", generation="hopper 9",
    method="pretrain", sequence_tokens=4096, experts=False, bits=16, step_rows=3, memory_rows=0,
)  # fmt: skip


def evidence(*runs: MeasuredRuns, case: Case = CASE) -> float:
    return float(RunTable(runs).evidence(Cases.of(case)))


def case(**changes) -> Case:
    return replace(CASE, workload=replace(CASE.workload, **changes))


def test_rows_of_one_source_count_less_than_those_of_another():
    more_rows, other_source = replace(SAME, step_rows=6), replace(SAME, source="B")
    assert evidence() == 0.0
    assert evidence(SAME) == pytest.approx(3 / 4)
    assert evidence(SAME) < evidence(more_rows) < 1.0 < evidence(SAME, other_source)


@pytest.mark.parametrize(
    ("other", "worth"),
    [
        pytest.param(replace(SAME, stack="fsdp2"), 1 / 2, id="stack of the family"),
        pytest.param(replace(SAME, stack="nemo", family="megatron"), 1 / 4, id="other stack"),
        pytest.param(replace(SAME, gpu="H200-SXM-141GB"), 1 / 2, id="GPU of the generation"),
        pytest.param(replace(SAME, gpu="L4", generation="ada-lovelace 9"), 1 / 4, id="other GPU"),
        pytest.param(replace(SAME, method="finetune"), 1 / 2, id="related method"),
        pytest.param(replace(SAME, method="lora"), 1 / 4, id="other method"),
        pytest.param(replace(SAME, sequence_tokens=16384), 1 / 2, id="four times as long"),
        pytest.param(replace(SAME, sequence_tokens=131072), 1 / 4, id="far longer"),
        pytest.param(replace(SAME, experts=True), 1 / 4, id="experts"),
        pytest.param(replace(SAME, bits=8), 1 / 4, id="precision"),
    ],
)
def test_evidence_halves_with_each_step_away(other, worth):
    assert evidence(other) == pytest.approx(worth * evidence(SAME))
    assert evidence(SAME, other) == evidence(SAME)  # the source's most similar runs count


def test_a_source_that_is_left_out_adds_no_evidence():
    both = RunTable([SAME, replace(SAME, source="B")])
    assert float(both.without("B").evidence(Cases.of(CASE))) == evidence(SAME)


def test_an_unnamed_stack_is_never_better_known_than_a_named_one():
    unnamed = replace(CASE, framework=replace(CASE.framework, known=False))
    assert evidence(SAME, case=unnamed) == pytest.approx(evidence(SAME) / 2)


def test_step_times_and_peaks_are_counted_apart():
    assert float(RunTable([SAME]).evidence(Cases.of(CASE), "memory")) == 0.0


def test_cases_are_counted_row_by_row():
    cases = [CASE, case(sequence_tokens=16384)]
    found = RunTable([SAME]).evidence(Cases.stack(cases))
    assert found == pytest.approx([evidence(SAME, case=one) for one in cases])


def test_a_table_of_rows_counts_by_source_and_facet():
    rows = Cases.stack([CASE, CASE, case(precision=Precision.FP8)])
    table = measured_runs(rows, ["A", "A", "B"], np.asarray([1, 1, 1]), np.asarray([0, 1, 0]))
    assert [(r.source, r.bits, r.step_rows, r.memory_rows) for r in table.runs] == [
        ("A", 16, 2, 1),
        ("B", 8, 1, 0),
    ]
    assert table.runs[0] == replace(SAME, step_rows=2, memory_rows=1)


def test_the_packaged_table_has_facets_that_the_engine_knows():
    gpus = {gpu.name: generation(gpu.architecture, gpu.compute_capability) for gpu in lookup.gpus()}
    for runs in measured().runs:
        assert gpus.get(runs.gpu, runs.generation) == runs.generation
        assert Method(runs.method)
        assert runs.step_rows + runs.memory_rows > 0


def test_a_usual_question_is_well_known_and_a_strange_one_is_not():
    usual = familiarity(CASE.architecture, CASE.workload, CASE.cluster.gpu, CASE.framework)
    work = replace(CASE.workload, method=Method.LORA, precision=Precision.NVFP4, sequence_tokens=262_144)
    strange = familiarity(CASE.architecture, work, lookup.gpu("MI355X"), framework("unsloth"))
    assert (usual.level, usual.unfamiliar) == (Level.WELL, ())
    assert strange.level is Level.NEVER
    assert "unsloth" in strange.unfamiliar
    assert strange.evidence < usual.evidence
    assert {count.facet for count in usual.facets} == {
        "stack",
        "gpu",
        "method",
        "sequence",
        "kind",
        "precision",
    }

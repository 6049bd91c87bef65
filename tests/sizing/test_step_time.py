from dataclasses import replace

import numpy as np
import pytest

from rightsizer import catalog, step_time
from rightsizer.cases import Case, Cases
from rightsizer.columns import Columns
from rightsizer.framework import framework
from rightsizer.layout import Layout, Sharding
from rightsizer.workload import Workload


def case(**layout: int) -> Case:
    split = {"dp": 8, "sharding": Sharding.ZERO3, "micro_batch": 1, "micro_batches": 4} | layout
    return Case(
        architecture=catalog.model("meta-llama/Llama-3.1-8B"),
        workload=Workload(tokens=1e11, sequence_tokens=8192, global_batch_sequences=32),
        cluster=catalog.cluster("H100-SXM5-80GB"),
        framework=framework("torchtitan"),
        layout=Layout(**split),  # type: ignore[arg-type]
    )


def seconds(one: Case) -> float:
    return float(step_time.estimate(Cases.of(one)).total_s)


def test_the_total_is_the_sum_of_its_causes() -> None:
    found = step_time.estimate(Cases.of(case()))
    assert float(found.total_s) == pytest.approx(sum(float(v) for v in found.causes.values()))


def test_every_cause_is_finite_and_not_negative() -> None:
    found = step_time.estimate(Cases.of(case(tp=8, pp=4, dp=2, cp=2, micro_batches=16)))
    assert all(np.isfinite(v) and v >= 0 for v in found.causes.values())


def test_columns_of_layouts_give_what_single_cases_give() -> None:
    layouts = [case(dp=8).layout, case(dp=4, tp=2, micro_batches=8).layout, case(dp=2, pp=4).layout]
    together = step_time.estimate(Cases.of(case(), layouts=Columns.stack(layouts))).total_s
    assert together == pytest.approx([seconds(replace(case(), layout=one)) for one in layouts])

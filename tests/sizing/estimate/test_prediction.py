import numpy as np
import pytest

from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.cases import Case, Cases
from rightsizer_engine.domain.columns import Columns
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.layout import Layout
from rightsizer_engine.domain.workload import Method, Precision, Workload
from rightsizer_engine.estimate.prediction import model_flop_per_token, predict
from rightsizer_engine.search.pricing.layout_space import families, layouts
from rightsizer_engine.search.pricing.options import layout_of


def _case(method=Method.PRETRAIN, precision=Precision.BF16, name="megatron"):
    workload = Workload(
        tokens=1e9, sequence_tokens=4096, global_batch_sequences=256, method=method, precision=precision
    )
    model, cluster, profile = lookup.model("Llama 3.1 8B"), lookup.cluster("H100"), framework(name)
    some = families(model, workload, cluster, profile)
    columns, legal = layouts(some, np.full(len(some), 64), workload)
    case = Case(architecture=model, workload=workload, cluster=cluster, framework=profile, layout=Layout())
    return case, columns.take(np.flatnonzero(legal))


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP8, Precision.FP32])
def test_no_layout_is_faster_than_peak(precision):
    case, columns = _case(precision=precision)
    prediction = predict(Cases.of(case, layouts=columns))
    assert np.all(prediction.mfu > 0)
    assert np.all(prediction.mfu <= 1)


def test_the_step_is_at_least_the_sum_of_its_causes():
    case, columns = _case()
    prediction = predict(Cases.of(case, layouts=columns))
    total = sum(prediction.step_time.causes.values())
    assert np.all(prediction.step_s >= total * (1 - 1e-9))


def test_many_layouts_at_once_are_priced_as_each_alone():
    case, columns = _case()
    together = predict(Cases.of(case, layouts=columns))
    for index in range(0, together.step_s.size, 97):
        layout = Columns.stack([layout_of(columns, index)])
        alone = predict(Cases.of(case, layouts=layout))
        assert float(alone.step_s[0]) == pytest.approx(float(together.step_s[index]))
        assert alone.memory.device_bytes[0] == pytest.approx(together.memory.device_bytes[index])


def test_frozen_weights_need_a_third_less():
    full, adapters = (Cases.of(_case(m, name="peft")[0]) for m in (Method.FINETUNE, Method.LORA))
    assert float(model_flop_per_token(adapters)) == pytest.approx(float(model_flop_per_token(full)) * 2 / 3)


def test_full_recompute_never_takes_more_memory():
    case, columns = _case()
    ones = np.ones(columns.dp.shape, dtype=int)
    none = predict(Cases.of(case, layouts=columns.replace(recompute=0 * ones)))
    full = predict(Cases.of(case, layouts=columns.replace(recompute=2 * ones)))
    assert np.all(full.memory.device_bytes <= none.memory.device_bytes * (1 + 1e-9))
    assert np.all(full.step_s >= none.step_s * (1 - 1e-9))

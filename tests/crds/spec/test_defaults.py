import pytest

from rightsizer_api.spec.defaults import recipe_notes, workload_of
from rightsizer_api.spec.workload import WorkloadSpec
from rightsizer_engine.catalog import lookup
from rightsizer_engine.catalog.recipes import recipe
from rightsizer_engine.domain.framework import framework
from rightsizer_engine.domain.workload import Method, Precision

MODEL = lookup.model("DeepSeek-V3 671B")
OWN = recipe(MODEL.name)


def _gpus(*names):
    return [lookup.gpu(name) for name in names]


def _workload(gpus=("H800",), own=OWN, **stated):
    spec = WorkloadSpec(**({"tokens": "14.8T"} | stated))
    return workload_of(spec, MODEL, framework("megatron"), recipe=own, gpus=_gpus(*gpus))


def test_a_pretraining_takes_the_models_own_sequence_batch_and_precision():
    found = _workload()
    assert (found.sequence_tokens, found.global_batch_sequences) == (4096, 15_360)
    assert found.precision is Precision.FP8


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"sequenceLength": 8192}, (8192, 7_680, Precision.FP8)),
        ({"globalBatchSequences": 1024}, (4096, 1024, Precision.FP8)),
        ({"precision": "bf16"}, (4096, 15_360, Precision.BF16)),
    ],
    ids=["sequence", "batch", "precision"],
)
def test_what_the_user_states_wins(stated, expected):
    found = _workload(**stated)
    assert (found.sequence_tokens, found.global_batch_sequences, found.precision) == expected


def test_a_short_run_takes_the_batch_that_suits_its_compute():
    assert _workload(tokens="10B").global_batch_sequences < 1024


@pytest.mark.parametrize("gpus", [("A100",), ("H800", "A100"), ()], ids=["no fp8", "one without", "unnamed"])
def test_a_gpu_without_fp8_is_sized_in_bf16_with_a_note(gpus):
    found, spec = _workload(gpus), WorkloadSpec(tokens="14.8T")
    assert found.precision is Precision.BF16
    assert recipe_notes(spec, found, OWN, _gpus(*gpus))[-1].endswith("sized in bf16")


@pytest.mark.parametrize("own", [OWN, None], ids=["recipe", "no recipe"])
def test_gpus_before_ampere_are_sized_in_fp16_with_a_note(own):
    found = _workload(("V100", "T4"), own=own)
    assert found.precision is Precision.FP16
    notes = recipe_notes(WorkloadSpec(tokens="14.8T"), found, own, _gpus("V100", "T4"))
    assert notes[0].startswith("no bf16 matmuls on V100-SXM2-16GB, T4")


def test_one_gpu_type_with_bf16_keeps_it_the_default():
    assert _workload(("V100", "A100"), own=None).precision is Precision.BF16


def test_without_a_recipe_the_usual_values_are_assumed_without_a_note():
    found = _workload(own=None)
    assert (found.sequence_tokens, found.precision) == (8192, Precision.BF16)
    assert recipe_notes(WorkloadSpec(tokens="14.8T"), found, None, []) == ()


def test_finetuning_takes_no_recipe():
    assert _workload(own=None, method=Method.FINETUNE, tokens="1B").sequence_tokens == 2048

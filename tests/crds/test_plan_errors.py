import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rightsizer_api import PlanError, TrainingPlan, validate
from rightsizer_engine.errors import InputError

DIMENSIONS = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100}

BAD = {
    "misspelt field": (
        {"spec.workload.tokns": "100B"},
        "spec.workload.tokns: unknown field; did you mean tokens?",
    ),
    "snake case": ({"spec.budget.max_usd": 5}, "spec.budget.max_usd: unknown field; did you mean maxUSD?"),
    "field of a neighbour": (
        {"spec.tokens": 5},
        "spec.tokens: unknown field; did you mean spec.workload.tokens?",
    ),
    "alien field": (
        {"spec.budget.xyzzy": 5},
        "spec.budget.xyzzy: unknown field; known here: maxUSD, usdPerGPUHour",
    ),
    "missing section": ({"spec.workload": None}, "spec.workload: is required"),
    "missing name": ({"metadata.name": None}, "metadata.name: is required, such as demo"),
    "wrong kind": ({"kind": "Job"}, "kind: 'Job': must be TrainingPlan"),
    "wrong version": ({"apiVersion": "v1"}, "apiVersion: 'v1': must be rightsizer.dev/v1alpha1"),
    "long name": ({"metadata.name": "a" * 41}, "metadata.name: .* at most 40 characters"),
    "name with capitals": ({"metadata.name": "Bot"}, "metadata.name: 'Bot': must match .*, such as demo"),
    "tokens without sense": (
        {"spec.workload.tokens": "lots"},
        "spec.workload.tokens: 'lots': write tokens as 100B",
    ),
    "negative tokens": ({"spec.workload.tokens": -5}, "spec.workload.tokens: -5: must be more than zero"),
    "boolean tokens": ({"spec.workload.tokens": True}, "spec.workload.tokens: True: write tokens"),
    "duration without unit": ({"spec.deadline.finishWithin": 72}, "finishWithin: 72: has no unit; .*72h"),
    "moment without zone": (
        {"spec.deadline": {"finishBy": "2026-09-30T18:00:00"}},
        "spec.deadline.finishBy: .*with its time zone, as 2026-09-30T18:00:00Z",
    ),
    "no such day": ({"spec.deadline": {"finishBy": "2026-02-31T18:00:00Z"}}, "finishBy: .*: is no date"),
    "no year in UTC": (
        {"spec.deadline": {"finishBy": "9999-12-31T23:59:59-12:00"}},
        "finishBy: .*: is no date",
    ),
    "certainty": (
        {"spec.deadline.confidence": 1.0},
        "spec.deadline.confidence: 1.0: must be less than .* 0.999",
    ),
    "infinite number": ({"spec.deadline.confidence": float("inf")}, "confidence: inf: must be"),
    "unknown precision": (
        {"spec.workload.precision": "bf61"},
        "precision: 'bf61': must be one of .*mean bf16",
    ),
    "unknown framework": ({"spec.launch.framework": "megatorn"}, "framework: .* did you mean megatron"),
    "text for a number": (
        {"spec.workload.sequenceLength": "8k"},
        "sequenceLength: '8k': .*integer, such as 8192",
    ),
    "fraction for an integer": ({"spec.resources.maxGPUs": 2.5}, "maxGPUs: 2.5: must be a valid integer"),
    "number for text": ({"spec.launch.image": 3}, "spec.launch.image: 3: must be text; put it in quotes"),
    "text for a list": ({"spec.launch.command": "train.py"}, "command: 'train.py': must be a list, such as"),
    "value for an object": ({"spec.budget": 5}, "spec.budget: 5: must be a mapping"),
    "interval": (
        {"spec.launch.checkpoint.interval": "often"},
        "interval: 'often': write auto, or write a duration",
    ),
    "unknown placeholder": (
        {"spec.launch.args": ["-x", "{layout.tq}"]},
        r"spec.launch.args\[1\]: '{layout.tq}': unknown placeholder; did you mean {layout.tp}",
    ),
    "variable twice": (
        {"spec.launch.env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]},
        r"spec.launch.env\[1\].name: 'A': is set twice",
    ),
    "restart policy": (
        {"spec.launch.podTemplate.spec.restartPolicy": "Always"},
        "podTemplate.spec.restartPolicy: 'Always': must be Never",
    ),
    "kubectl's Off": ({"spec.elasticity.mode": False}, "spec.elasticity.mode: False: must be one of Off"),
    "huge number": ({"spec.resources.maxGPUs": 10**5000}, "spec.resources.maxGPUs: 'a very long number'"),
    "huge config": ({"spec.model": {"config": {"x": "y" * 70_000}}}, "spec.model.config: .* at most 65,536"),
    "release": (
        {"spec.workload.libraryVersion": "2.13.1"},
        "libraryVersion: '2.13.1': must match .*such as 2025-06",
    ),
}

RULES = {
    "two models": ({"spec.model.config": {}}, "spec.model: give exactly one of name, config"),
    "no model": ({"spec.model": {}}, "spec.model: give exactly one of name, config"),
    "no tokens": (
        {"spec.workload.tokens": None},
        "spec.workload.tokens: give exactly one of tokens and dataset",
    ),
    "tokens twice": (
        {"spec.workload.dataset": {"examples": "52k", "length": 512}},
        "spec.workload.tokens: '100B': give exactly one",
    ),
    "batch twice": ({"spec.workload.globalBatchSequences": 4}, "globalBatchTokens: '4M': .*not both"),
    "adapters without lora": (
        {"spec.workload.lora": {"rank": 8}},
        "spec.workload.lora: .*lora and qlora only",
    ),
    "no deadline": ({"spec.deadline": {}}, "spec.deadline: give exactly one of finishBy and finishWithin"),
    "two deadlines": ({"spec.deadline.finishBy": "2026-09-30T18:00:00Z"}, "spec.deadline: give exactly one"),
    "min above max": (
        {"spec.resources.minGPUs": 512},
        "spec.resources.minGPUs: 512: .*cannot exceed maxGPUs",
    ),
    "size outside": ({"spec.resources.gpus": 512}, "spec.resources.gpus: 512: .*between minGPUs and maxGPUs"),
    "elastic min above max": ({"spec.elasticity.maxGPUs": 4}, "spec.elasticity.minGPUs: 8: .*cannot exceed"),
    "elastic above resources": (
        {"spec.elasticity.maxGPUs": 512},
        "spec.elasticity.maxGPUs: 512: .*resources.maxGPUs",
    ),
    "args alone": ({"spec.launch.command": []}, "spec.launch.args: .*args need a command"),
    "torchrun's variable": (
        {"spec.launch.env": [{"name": "PET_NNODES", "value": "1"}]},
        r"spec.launch.env\[0\].name: 'PET_NNODES': is set by torchrun",
    ),
    "the rank": ({"spec.launch.env": [{"name": "RANK", "value": "1"}]}, r"env\[0\].name: 'RANK': is set by"),
    "two values": (
        {"spec.launch.env": [{"name": "A", "value": "1", "valueFrom": {}}]},
        r"env\[0\].value: '1': give value or valueFrom",
    ),
    "heads": ({"spec.model": {"dimensions": DIMENSIONS | {"heads": 5}}}, "dimensions.headDim: .*set headDim"),
    "kv heads": ({"spec.model": {"dimensions": DIMENSIONS | {"kvHeads": 3}}}, "kvHeads: 3: .*divide heads"),
    "experts": ({"spec.model": {"dimensions": DIMENSIONS | {"experts": 8}}}, "topK: 0: .*needs topK"),
    "mla": ({"spec.model": {"dimensions": DIMENSIONS | {"attention": "mla"}}}, "kvLoraRank: 0: mla needs"),
    "dense layers": (
        {"spec.model": {"dimensions": DIMENSIONS | {"denseLayers": 3}}},
        "denseLayers: 3: .*layers",
    ),
}


@pytest.mark.parametrize(("changes", "message"), (BAD | RULES).values(), ids=(BAD | RULES).keys())
def test_bad_input_is_one_clear_line(document, changes, message):
    with pytest.raises(InputError, match=message) as caught:
        validate(document(changes))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 320


def test_the_example_is_accepted(document):
    plan = validate(document())
    assert plan.spec.workload.tokens == "100B"
    assert plan.spec.launch.restarts.limit == 10


def test_the_misspelling_is_reported_before_the_missing_field(document):
    with pytest.raises(PlanError, match="mdoel: unknown field; did you mean model") as caught:
        validate(document({"spec.mdoel": {"name": "x"}, "spec.model": None}))
    assert [other.field for other in caught.value.others] == ["spec.model"]


def test_what_kubernetes_adds_to_metadata_is_ignored(document):
    plan = validate(document({"metadata.managedFields": [{}], "metadata.generation": 3, "metadata.uid": "a"}))
    assert plan.metadata.generation == 3


@pytest.mark.parametrize("document_", [None, [], "text", 5], ids=repr)
def test_a_document_that_is_no_mapping_is_refused(document_):
    with pytest.raises(InputError, match="is not a mapping; start with apiVersion"):
        validate(document_)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PATHS = sorted({path for changes, _ in (BAD | RULES).values() for path in changes})


@given(path=st.sampled_from(PATHS), value=VALUES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_anywhere_is_a_plan_or_an_input_error(document, path, value):
    with contextlib.suppress(InputError):
        assert isinstance(validate(document({path: value})), TrainingPlan)

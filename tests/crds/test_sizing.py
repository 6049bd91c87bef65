import datetime as dt

import jsonschema
import pytest

from rightsizer_api import PlanReport, reporting, sizing, validate
from rightsizer_api.schema.crd import crd
from rightsizer_engine.catalog import lookup
from rightsizer_engine.domain.workload import Method, Recompute
from rightsizer_engine.errors import InputError, UnknownNameError
from rightsizer_engine.search.size import size
from rightsizer_engine.search.types import NoPlan

NOW = dt.datetime(2026, 9, 1, tzinfo=dt.UTC)
DIMENSIONS = {"layers": 4, "hidden": 256, "heads": 4, "vocab": 1000}


@pytest.fixture
def ask(document):
    return lambda changes=None: sizing.resolve(validate(document(changes))).request(now=NOW)


def test_a_plan_becomes_a_request(ask):
    asked = ask()
    assert asked.architecture == lookup.model("meta-llama/Llama-3.1-8B")
    assert (asked.workload.tokens, asked.workload.global_batch_sequences) == (100e9, 488)
    assert (asked.deadline_s, asked.confidence, asked.max_usd) == (259_200.0, 0.9, 60_000.0)
    assert (asked.min_gpus, asked.max_gpus, asked.gpu_counts) == (1, 256, ())
    assert [c.gpu.name for c in asked.clusters] == ["H100-SXM5-80GB"]
    assert asked.framework.name == "torchtitan"


@pytest.mark.parametrize(
    ("changes", "attribute", "expected"),
    [
        ({"spec.deadline": {"finishBy": "2026-09-02T00:00:00Z"}}, "deadline_s", 86_400.0),
        ({"spec.deadline": None}, "deadline_s", None),
        ({"spec.resources.gpus": 64}, "gpu_counts", (64,)),
        ({"spec.layout": {"tp": 8, "microBatch": 2}}, "pinned", {"tp": 8, "micro_batch": 2}),
        ({"spec.launch": {"framework": "deepspeed-zero3"}}, "pinned", {"sharding": 3}),
        ({"spec.launch": {"framework": "deepspeed"}}, "pinned", {}),
        ({"spec.budget": None}, "max_usd", None),
        ({"spec.resources.spareNodes": 2}, "spare_nodes", 2),
        ({"spec.elasticity.maxGPUs": 96}, "grow_to", 96),
        ({}, "batch_tolerance", 0.05),
        ({"spec.workload.globalBatchTokens": None}, "batch_tolerance", 0.1),
    ],
    ids=[
        "finish by",
        "no deadline",
        "exact size",
        "pins",
        "stage in the name",
        "no stage in the name",
        "no budget",
        "spares",
        "elasticity",
        "batch",
        "no batch",
    ],
)
def test_each_section_reaches_the_engine(ask, changes, attribute, expected):
    assert getattr(ask(changes), attribute) == expected


@pytest.mark.parametrize(
    ("changes", "attribute", "expected"),
    [
        ({"sequenceLength": None}, "sequence_tokens", 8192),
        ({"sequenceLength": None, "method": "finetune"}, "sequence_tokens", 2048),
        (
            {"tokens": None, "dataset": {"examples": "52k", "length": 512, "epochs": 3}},
            "tokens",
            79_872_000.0,
        ),
        ({"globalBatchTokens": None, "method": "lora"}, "global_batch_sequences", 64),
        (
            {"globalBatchTokens": None},
            "global_batch_sequences",
            512,
        ),  # 3.7M tokens suit 100B on 8B parameters
        ({"globalBatchTokens": None, "globalBatchSequences": 7}, "global_batch_sequences", 7),
        ({"method": "qlora", "lora": {"rank": 64}}, "lora_rank", 64),
        ({"method": "lora"}, "method", Method.LORA),
        ({"recompute": "selective"}, "recompute", Recompute.SELECTIVE),
        ({"libraryVersion": "2025-07"}, "library_year", 2025.5),
        ({"libraryVersion": "25.07"}, "library_year", 2025.5),
        ({"compile": False}, "compile", False),
        ({"method": "qlora", "quantiser": "gptq"}, "quantiser", "gptq"),
        ({"precision": "fp8", "scaling": "row"}, "scaling", "row"),
    ],
    ids=str,
)
def test_each_field_of_a_workload_reaches_the_engine(ask, changes, attribute, expected):
    asked = ask({f"spec.workload.{name}": value for name, value in changes.items()})
    assert getattr(asked.workload, attribute) == expected


def test_a_sequence_left_out_is_never_longer_than_the_model_takes(ask):
    asked = ask({"spec.model.name": "GPT-2 small", "spec.workload.sequenceLength": None})
    assert asked.workload.sequence_tokens == 1024


@pytest.mark.parametrize(
    ("framework", "method", "profile"),
    [
        ("custom", "pretrain", "unknown"),
        ("custom", "lora", "unknown-adapters"),
        ("accelerate", "qlora", "peft"),
        ("megatron", "pretrain", "megatron"),
        ("deepspeed", "finetune", "deepspeed-zero"),
    ],
)
def test_the_framework_becomes_a_profile(ask, framework, method, profile):
    asked = ask({"spec.launch.framework": framework, "spec.workload.method": method})
    assert asked.framework.name == profile


def test_a_named_profile_wins(ask):
    assert ask({"spec.launch.profile": "nemo"}).framework.name == "nemo"


def test_dimensions_get_their_defaults(ask):
    made = ask({"spec.model": {"dimensions": DIMENSIONS}}).architecture
    assert (made.name, made.ffn_hidden, made.kv_heads, made.head_dim) == ("support-bot-8b", 1024, 4, 64)


def test_an_inline_config_is_read(ask):
    config = {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
    }
    made = ask({"spec.model": {"config": config}}).architecture
    assert made.parameters_total == pytest.approx(8.03e9, rel=0.01)


def test_prices_and_networks_of_ones_own_are_used(ask):
    network = {"spec.resources.interconnect": {"interNodeGBps": 12.5}, "spec.budget.usdPerGPUHour": "$2.50"}
    (cluster,) = ask(network).clusters
    assert (cluster.inter_bytes_per_s, cluster.price_usd_per_gpu_h) == (12.5e9, 2.5)


def test_cards_links_and_power_of_ones_own_are_used(ask):
    links = {"interNodeGBps": "4x NDR200", "intraNodeGBps": "PCIe5 x8"}
    stated = {"spec.resources.interconnect": links, "spec.resources.gpuPowerWatts": 500}
    (cluster,) = ask(stated | {"spec.resources.gpusPerNode": 8}).clusters
    assert (cluster.inter_bytes_per_s, cluster.intra_bytes_per_s) == (12.5e9, 31.5e9)
    assert (cluster.nvlink_domain_gpus, cluster.gpu.power_w) == (1, 500)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spec.resources.gpuPowerWatts": 3000}, "^spec.resources.gpuPowerWatts: 3000"),
        ({"spec.model.name": "llama-9000"}, "^spec.model.name: 'llama-9000'"),
        ({"spec.resources.gpuTypes": ["H100", "H101"]}, r"^spec.resources.gpuTypes\[1\]: 'H101'"),
        ({"spec.resources.gpuTypes": None}, "^spec.resources.gpuTypes: .*name at least one"),
        ({"spec.resources.nodeShape": "p9.huge"}, "^spec.resources.nodeShape: 'p9.huge'"),
        ({"spec.resources.nodeShape": "p4d.24xlarge"}, "^spec.resources.nodeShape: .*has A100"),
        ({"spec.launch.profile": "nemoo"}, "^spec.launch.profile: 'nemoo'"),
        ({"spec.deadline": {"finishBy": "2026-08-01T00:00:00Z"}}, "finishBy: .*is past"),
        (
            {"spec.workload.globalBatchTokens": "1k"},
            "globalBatchTokens: '1k': is in tokens, and less than one sequence of 8192",
        ),
        ({"spec.model": {"config": {"model_type": "llama"}}}, r"^spec.model.config"),
        ({"spec.model": {"configPath": "c.json"}}, "spec.model.configPath: 'c.json': was not read"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_the_engines_errors_name_the_plans_fields(ask, changes, message):
    with pytest.raises(InputError, match=message):
        ask(changes)


def test_candidates_survive(ask):
    with pytest.raises(UnknownNameError) as caught:
        ask({"spec.resources.gpuTypes": ["H101"]})
    assert any("H100" in name for name in caught.value.candidates)


@pytest.fixture(scope="module")
def small():
    return {
        "spec.workload.tokens": "1B",
        "spec.resources.maxGPUs": 16,
        "spec.deadline": {"finishWithin": "3d"},
    }


STATUS = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
KEYS = [
    "gpus",
    "gpuType",
    "nodes",
    "layout",
    "finishSeconds",
    "costUSD",
    "memoryGiB",
    "stepSeconds",
    "interval",
    "reasons",
    "runnersUp",
]


def test_a_plan_becomes_a_report(ask, small):
    answer = size(ask(small))
    report = reporting.report(answer).model_dump(mode="json")
    assert report["feasible"] is True
    assert [key for key in KEYS if report[key] is None] == []
    assert report["gpus"] == answer.option.gpus
    assert report["interval"]["lowSeconds"] <= report["finishSeconds"] <= report["interval"]["highSeconds"]
    assert sum(report["stepByCauseSeconds"].values()) == pytest.approx(report["stepSeconds"], rel=1e-3)
    assert sum(report["memoryByCauseGiB"].values()) == pytest.approx(report["memoryGiB"], rel=1e-3)


def test_a_report_states_the_evidence_behind_the_plan(ask, small):
    found = reporting.report(size(ask(small))).familiarity
    assert found.level.endswith("measured")
    assert [f.facet for f in found.facets] == ["stack", "gpu", "method", "sequence", "kind", "precision"]


def test_no_plan_becomes_a_report(ask, small):
    answer = size(ask(small | {"spec.deadline": {"finishWithin": "1m"}}))
    assert isinstance(answer, NoPlan)
    report = reporting.report(answer)
    assert (report.feasible, report.gpus, report.binding) == (False, None, answer.binding)
    assert report.reasons


def test_a_report_fits_its_schema_and_the_status(ask, small):
    report = reporting.report(size(ask(small)))
    schema = PlanReport.model_json_schema(by_alias=True, mode="serialization")
    jsonschema.validate(report.model_dump(mode="json"), schema)
    jsonschema.validate(report.model_dump(mode="json", exclude_none=True), STATUS["sizing"])
    assert PlanReport.model_validate_json(report.model_dump_json()) == report


@pytest.mark.parametrize(
    ("launch", "method", "name", "assumed"),
    [
        (None, "pretrain", "torchtitan", True),
        (None, "lora", "peft", True),
        ({"command": ["train.py"]}, "pretrain", "unknown", False),
        ({"framework": "custom"}, "pretrain", "unknown", False),
        ({"framework": "megatron"}, "pretrain", "megatron", False),
    ],
    ids=["nothing said", "adapters", "a script", "custom", "named"],
)
def test_a_framework_is_assumed_only_where_nothing_will_be_launched(ask, launch, method, name, assumed):
    asked = ask({"spec.launch": launch, "spec.workload.method": method})
    assert (asked.framework.name, asked.framework_assumed) == (name, assumed)
    assert asked.framework.known == (launch == {"framework": "megatron"})


@pytest.mark.parametrize(
    ("changes", "elastic"),
    [
        ({}, True),
        ({"spec.launch": None}, True),
        ({"spec.elasticity": {"mode": "Off"}}, False),
        ({"spec.resources.gpus": 64}, False),
        ({"spec.resources.minGPUs": 256}, False),
        ({"spec.launch.checkpoint": None}, False),
        ({"spec.launch.framework": "nemo"}, False),
        ({"spec.launch.framework": "nemo", "spec.launch.args": ["--dir={checkpoint.path}"]}, True),
        ({"spec.launch.framework": "deepspeed"}, False),
        ({"spec.launch.framework": "deepspeed-zero2"}, True),
        ({"spec.launch.framework": "deepspeed", "spec.launch.args": ["--dir={checkpoint.path}"]}, True),
    ],
    ids=[
        "as usual", "nothing to launch yet", "Off", "exact size", "one size", "no checkpoints", "log lines",
        "told where to save", "open ZeRO stage", "named ZeRO stage", "open stage, told where to save",
    ],
)  # fmt: skip
def test_a_job_is_elastic_where_it_may_be_resized_and_can_resume(ask, changes, elastic):
    assert ask(changes).elastic is elastic


@pytest.mark.parametrize(
    ("framework", "said"),
    [("megatron-lm", True), ("torchtitan", False), ("deepspeed", True), ("deepspeed-zero3", False)],
)
def test_a_plan_notes_that_its_stack_is_never_resized(ask, framework, said):
    notes = ask({"spec.launch.framework": framework}).notes
    assert any(note.startswith("never resized: ") for note in notes) is said


def test_an_executor_that_cannot_resize_plans_a_fixed_size(document):
    assert sizing.resolve(validate(document())).request(resizable=False).elastic is False


def test_an_opening_is_reported_in_full(ask):
    answer = size(ask())
    found = reporting.report(answer).model_dump(mode="json")
    opening, schema = found["opening"], STATUS["sizing"]["properties"]["opening"]["properties"]
    assert sorted(opening) == sorted(schema)
    assert opening["gpus"] == found["gpus"] < opening["likelyGPUs"] <= opening["reserveGPUs"]
    assert found["confidence"] <= opening["deadlineProbability"] <= 1.0
    assert opening["text"].startswith(f"open with {found['gpus']} H100-SXM5-80GB; after ~20 min of training")

import re

import jsonschema
import pytest
import yaml

from rightsizer_api.base import Model, camel
from rightsizer_api.plan import TrainingPlan
from rightsizer_api.schema import generate
from rightsizer_api.schema.crd import crd, crd_yaml, structural

SCHEMA = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
FORBIDDEN = {
    "$ref",
    "anyOf",
    "allOf",
    "oneOf",
    "not",
    "title",
    "const",
    "examples",
    "definitions",
    "nullable",
}
FREE = {"config", "valueFrom", "metadata", "spec"}


def nodes(node, path=""):
    """Every node of a structural schema with its path."""
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in node:
            yield from nodes(node[key], f"{path}[]")


NODES = dict(nodes(SCHEMA))


def closed(node):
    """The schema as an API server with strict field validation reads it: nothing that is not named."""
    made = {k: v for k, v in node.items() if not k.startswith("x-kubernetes-")}
    if node.get("x-kubernetes-int-or-string"):
        made["type"] = ["integer", "string"]
    if "properties" in node:
        made["properties"] = {k: closed(v) for k, v in node["properties"].items()}
        made["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            made[key] = closed(node[key])
    return made


def strict():
    schema = closed(SCHEMA)
    schema["properties"]["metadata"] = {"type": "object"}
    return jsonschema.Draft202012Validator(schema)


def is_structural(path, node):
    kind, inner = node.get("type"), {"properties", "additionalProperties"} & set(node)
    return (
        not FORBIDDEN & set(node)
        and (kind is not None) != bool(node.get("x-kubernetes-int-or-string"))
        and len(inner) <= 1
        and (kind != "array" or "items" in node)
        and (kind != "object" or inner or path == ".metadata" or node["x-kubernetes-preserve-unknown-fields"])
    )


def test_every_node_is_structural():
    assert [path for path, node in NODES.items() if not is_structural(path, node)] == []


def is_bounded(node):
    kind = node.get("type")
    return (
        (kind != "string" or "maxLength" in node or "enum" in node)
        and (kind not in {"integer", "number"} or {"minimum", "maximum"} <= set(node))
        and (kind != "array" or "maxItems" in node)
    )


def test_every_field_of_a_spec_is_described_and_bounded():
    spec = {path: node for path, node in NODES.items() if path.startswith(".spec")}
    assert [path for path, node in spec.items() if not is_bounded(node)] == []
    assert [p for p, node in spec.items() if not p.endswith("[]") and not node.get("description")] == []


def test_only_foreign_documents_are_kept_unseen():
    free = {p.rsplit(".", 1)[-1] for p, n in NODES.items() if n.get("x-kubernetes-preserve-unknown-fields")}
    assert free == FREE


def models(model=TrainingPlan):
    for field in model.model_fields.values():
        for inner in re.findall(r"rightsizer_api(?:\.\w+)+", str(field.annotation)):
            module, name = inner.rsplit(".", 1)
            found = getattr(__import__(module, fromlist=[name]), name)
            if isinstance(found, type) and issubclass(found, Model):
                yield found
                yield from models(found)


RULED = sorted({m for m in models() if m.rules or m.transitions}, key=lambda m: m.__name__)


@pytest.mark.parametrize("model", RULED, ids=lambda m: m.__name__)
def test_every_rule_reaches_the_server_and_names_real_fields(model):
    kept = structural(model)["x-kubernetes-validations"]
    assert [r["rule"] for r in kept] == [r.cel for r in (*model.rules, *model.transitions)]
    known = {camel(name) for name in model.model_fields}
    for rule in kept:
        assert set(re.findall(r"\b(?:self|oldSelf)\.(\w+)(?!\w|\()", rule["rule"])) <= known
        assert rule["message"]
        assert rule.get("fieldPath", ".x").startswith(".")


def test_there_are_rules_on_every_section_that_needs_them():
    names = {m.__name__ for m in RULED}
    assert names >= {
        "ModelSpec",
        "Dimensions",
        "WorkloadSpec",
        "Deadline",
        "Resources",
        "Elasticity",
        "EnvVar",
        "Spec",
    }


@pytest.mark.parametrize(
    "path",
    [
        ".spec.workload.method",
        ".spec.workload.optimizer",
        ".spec.launch.framework",
        ".spec.launch.checkpoint.path",
    ],
)
def test_what_a_checkpoint_depends_on_cannot_change(path):
    assert NODES[path]["x-kubernetes-validations"][0]["rule"] == "self == oldSelf"


def test_the_name_leaves_room_for_its_children():
    rules = [r["rule"] for r in SCHEMA["x-kubernetes-validations"]]
    assert "self.metadata.name.size() <= 40" in rules
    assert len(f"{'a' * 40}-a9999-16383-abcde") <= 63


GOOD = {
    "example": {},
    "numbers": {"spec.workload.tokens": 10**11, "spec.budget.maxUSD": "$8,500"},
    "config": {"spec.model": {"config": {"model_type": "llama", "nested": {"a": [1]}}}},
    "dimensions": {"spec.model": {"dimensions": {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100}}},
    "dataset": {
        "spec.workload": {"dataset": {"examples": "52k", "length": 512, "epochs": 3}, "method": "qlora"}
    },
    "pods": {"spec.launch.podTemplate": {"spec": {"nodeSelector": {"a": "b"}}}},
    "moment": {"spec.deadline": {"finishBy": "2026-09-30T18:00:00Z"}},
    "pins": {"spec.layout": {"tp": 8, "microBatch": 1}},
}


@pytest.mark.parametrize("changes", GOOD.values(), ids=GOOD.keys())
def test_models_and_schema_accept_the_same_documents(document, changes):
    TrainingPlan.model_validate(document(changes), by_alias=True, by_name=False)
    strict().validate(document(changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"spec.workload.tokns": "1B"},
        {"spec.workload.tokens": "lots"},
        {"spec.workload.tokens": 0},
        {"spec.deadline.finishWithin": 72},
        {"spec.deadline.finishWithin": "3 days"},
        {"spec.deadline.confidence": 2},
        {"spec.workload.precision": "bf61"},
        {"spec.launch.checkpoint.interval": "often"},
        {"spec.launch.env": [{"value": "x"}]},
        {"spec.model": None},
        {"spec.elasticity.mode": False},
        {"spec.budget.maxUSD": "cheap"},
    ],
    ids=str,
)
def test_models_and_schema_refuse_the_same_documents(document, changes):
    with pytest.raises(ValueError, match="validation error"):
        TrainingPlan.model_validate(document(changes), by_alias=True, by_name=False)
    assert not strict().is_valid(document(changes))


def test_columns_scale_and_names():
    version = crd()["spec"]["versions"][0]
    names = [column["name"] for column in version["additionalPrinterColumns"]]
    assert [n for n in names if n != "Type"] == [
        *("GPUs", "Reserve", "Layout", "ETA", "Deadline", "State", "Age")
    ]
    scale = version["subresources"]["scale"]
    assert NODES[scale["specReplicasPath"]]["type"] == "integer"
    assert NODES[scale["statusReplicasPath"]]["type"] == "integer"
    assert NODES[scale["labelSelectorPath"]]["type"] == "string"
    assert crd()["spec"]["names"]["shortNames"] == ["tp"]


def test_parts_of_the_status_with_one_writer_are_atomic():
    status = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    parts = {name for name, node in status.items() if node.get("x-kubernetes-map-type") == "atomic"}
    assert parts == {name for name, node in status.items() if "properties" in node}


def test_the_yaml_is_the_definition_and_fits_an_annotation():
    assert yaml.safe_load(crd_yaml()) == crd()
    assert len(crd_yaml()) < 200_000  # kubectl apply keeps a copy in an annotation of at most 256 KiB


def test_generated_files_are_fresh(capsys):
    assert generate.main(["--check"]) == 0, capsys.readouterr().err


def test_stale_files_are_named(tmp_path, capsys):
    assert generate.main(["--folder", str(tmp_path)]) == 0
    (tmp_path / "docs/plan-reference.md").write_text("old")
    assert generate.main(["--check", "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "stale: docs/plan-reference.md; run make generate\n"

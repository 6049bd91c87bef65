import json
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml

import rightsizer_cli
from rightsizer_api import crd_yaml
from rightsizer_engine.units import DURATION_PATTERN

CHART = Path(rightsizer_cli.__file__).resolve().parents[2] / "helm" / "rightsizer"


def test_the_chart_s_crd_is_the_generated_one():
    assert (CHART / "crds/trainingplans.rightsizer.dev.yaml").read_text() == crd_yaml()


@pytest.fixture(scope="module")
def schema():
    return json.loads((CHART / "values.schema.json").read_text())


@pytest.fixture(scope="module")
def values():
    return yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_defaults_fit_the_schema_and_every_value_is_in_both(schema, values):
    jsonschema.validate(values, schema)
    assert values.keys() == schema["properties"].keys() - {"global"}
    for name, section in schema["properties"].items():
        if values.get(name) and "properties" in section:
            assert values[name].keys() == section["properties"].keys()


def test_durations_are_written_as_in_plans(schema):
    assert schema["definitions"]["duration"]["pattern"] == DURATION_PATTERN


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ("image", {"repository": "r", "digest": "sha256:1"}),
        ("serviceAccount", {"created": True}),
        ("replicas", "2"),
        ("resizing", {"window": "30 minutes"}),
        ("podLabels", {"team": 1}),
        ("gpus", {"deviceClass": "GPUs of NVIDIA"}),
        ("topologySpreadConstraints", [{"topologyKey": "zone"}]),
        ("fullnameOverride", "Rightsizer"),
        ("monitoring", {"runbooks": 'x" onclick='}),
        ("replica", 2),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_value_is_refused_with_its_name(schema, value, wrong):
    with pytest.raises(jsonschema.ValidationError) as refused:
        jsonschema.validate({value: wrong}, schema)
    assert value in f"{refused.value.json_path} {refused.value.message}"


def test_an_unreleased_chart_has_the_version_of_a_program_without_a_tag():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    hatch = tomllib.loads((CHART.parents[1] / "pyproject.toml").read_text())["tool"]["hatch"]
    assert chart["appVersion"] == hatch["version"]["fallback-version"]


def test_the_chart_s_home_is_the_project_s_that_alerts_and_dashboards_link_to():
    home = yaml.safe_load((CHART / "Chart.yaml").read_text())["home"]
    linking = [*CHART.glob("monitoring/alerts.yaml"), CHART / "monitoring/rightsizer-fleet.json"]
    assert all(f"{home}/blob/main/docs/runbooks/" in file.read_text() for file in linking)

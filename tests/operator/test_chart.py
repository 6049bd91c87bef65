import json
import tomllib
from pathlib import Path

import yaml

import rightsizer_cli
from rightsizer_api import crd_yaml

CHART = Path(rightsizer_cli.__file__).resolve().parents[2] / "helm" / "rightsizer"


def test_the_chart_s_crd_is_the_generated_one():
    assert (CHART / "crds/trainingplans.rightsizer.dev.yaml").read_text() == crd_yaml()


def test_every_value_has_a_place_in_the_schema():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert values.keys() <= schema["properties"].keys()


def test_the_chart_and_the_program_have_one_version():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((CHART.parents[1] / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == chart["version"] == project["version"]

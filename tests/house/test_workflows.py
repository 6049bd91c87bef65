"""The workflows call verbs that exist, on the Pythons that the package states; the forms of .github parse."""

import re
import tomllib

import pytest
import yaml
from tests.house.test_ci import VERBS
from tests.house.test_house import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORMS = sorted(path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
by_name = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs(path):
    return yaml.safe_load(path.read_text())["jobs"].values()


def steps(path):
    return [step for job in jobs(path) for step in job["steps"]]


def made(path):
    """Verbs of make that a workflow calls; of a matrix each."""
    found = set()
    for job in jobs(path):
        matrix = job.get("strategy", {}).get("matrix", {})
        for step in job["steps"]:
            for verb in re.findall(r"\bmake (\$\{\{ matrix\.(\w+) \}\}|[\w-]+)", step.get("run", "")):
                found |= set(matrix[verb[1]]) if verb[1] else {verb[0]}
    return found


def test_there_are_the_four_workflows():
    assert [path.stem for path in WORKFLOWS] == ["ci", "docs", "nightly", "release"]


@by_name
def test_a_workflow_calls_verbs_that_the_makefile_has(path):
    installs = {"python3", "ca-certificates"}  # packages named after `make` in an apt-get line
    assert made(path) - installs
    assert made(path) - installs <= VERBS


@by_name
def test_every_action_is_pinned_and_every_job_states_its_rights_or_its_workflow_does(path):
    workflow = yaml.safe_load(path.read_text())
    assert "permissions" in workflow
    uses = [step["uses"] for step in steps(path) if "uses" in step]
    assert all(re.fullmatch(r"[\w.-]+/[\w./-]+@(v\d+|release/v\d+)", use) for use in uses)


def test_pull_requests_are_checked_and_their_units_run_on_every_python():
    workflow = yaml.safe_load((GITHUB / "workflows/ci.yml").read_text())
    assert {"pull_request", "push"} <= set(workflow[True])  # YAML 1.1 reads `on` as true
    units = workflow["jobs"]["units"]
    pythons = units["strategy"]["matrix"]["python"]
    stated = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if "Python :: 3." in each]
    assert pythons == stated
    assert PROJECT["requires-python"] == f">={pythons[0]}"
    assert all(job["timeout-minutes"] <= 8 for job in workflow["jobs"].values())
    assert made(GITHUB / "workflows/ci.yml") == {"check", "suite"}


def test_the_night_runs_what_a_developer_runs():
    assert made(GITHUB / "workflows/nightly.yml") - {"python3"} == {"ci", "nightly"}


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_has_the_parts_that_github_requires(path):
    """https://docs.github.com/communities/using-templates-to-encourage-useful-issues-and-pull-requests"""
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields)
    assert all(field["attributes"]["label"] for field in fields)
    assert all(field["attributes"]["options"] for field in fields if field["type"] == "dropdown")
    assert any(field.get("validations", {}).get("required") for field in fields)


def test_files_that_the_templates_name_exist():
    template = (GITHUB / "pull_request_template.md").read_text()
    assert all((GITHUB / link).is_file() for link in re.findall(r"\]\(([^)]+)\)", template))

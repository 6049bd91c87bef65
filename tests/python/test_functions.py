"""`import rightsizer`: the same answers as the command line, typed; mistakes named after the argument."""

import dataclasses
import datetime as dt
import inspect
import json
import re
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import rightsizer
from rightsizer_api import loads
from rightsizer_cli.main import execute
from rightsizer_cli.requests.flags import FixedLayoutFlags, GoalFlags, HardwareFlags, JobFlags, LayoutFlags

DOCUMENT = (Path(__file__).parents[2] / "docs/python.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.S)
ASKED = {"model": "meta-llama/Llama-3.1-8B", "tokens": "100B", "gpu": "H100"}


def report_of(capsys, *words: str) -> dict:
    execute([*words, "--model", ASKED["model"], "--gpu", "H100", "--no-calibration", "--json"])
    return json.loads(capsys.readouterr().out)


def test_a_plan_is_that_of_the_command_line(capsys):
    answer = rightsizer.plan(**ASKED, deadline=dt.timedelta(hours=72), calibrate=False)
    told = report_of(capsys, "plan", "--tokens", "100B", "--deadline", "72h")
    assert isinstance(answer, rightsizer.Plan)
    report = answer.report.model_dump(mode="json", by_alias=True)
    assert report == {key: told[key] for key in report}
    assert answer.step.seconds == pytest.approx(told["stepSeconds"], rel=1e-5)
    assert answer.step.memory_gib == pytest.approx(sum(answer.step.memory_gib_by_cause.values()))
    assert answer.step.interval_seconds.low < answer.step.seconds < answer.step.interval_seconds.high
    assert answer.reserve_gpus == told["opening"]["reserveGPUs"] >= answer.gpus
    assert loads(answer.yaml).spec.workload.tokens == "100B"


def test_what_no_gpu_count_meets_is_an_answer():
    answer = rightsizer.plan(**ASKED, deadline="1m", max_gpus=8)
    assert isinstance(answer, rightsizer.NoPlan)
    assert answer.binding == "deadline"


def test_a_layout_is_that_of_the_command_line(capsys):
    found = rightsizer.estimate_layout(model=ASKED["model"], gpu="H100", gpus=8, tp=2, calibrate=False)
    told = report_of(capsys, "estimate", "--gpus", "8", "--tp", "2")
    assert found.fit == "fits"
    assert found.layout.dp == told["layout"]["dp"]
    assert found.step.seconds == pytest.approx(told["stepSeconds"], rel=1e-5)


WRONG = {
    "quantity": ({"tokens": "many"}, "tokens", "many"),
    "name": ({"gpu": "H1000"}, "gpu", "H1000"),
    "nothing": (dict.fromkeys(ASKED), "manifest", ""),
    "not sized": ({"method": "grpo"}, "method", "grpo"),
    "number": ({"max_gpus": "x"}, "max_gpus", "x"),
}


@pytest.mark.parametrize(("change", "field", "value"), WRONG.values(), ids=WRONG)
def test_a_mistake_names_the_argument(change, field, value):
    with pytest.raises(rightsizer.Refused) as caught:
        rightsizer.plan(**ASKED | change)
    assert (caught.value.field, caught.value.value) == (field, value)
    assert caught.value.remedy in str(caught.value)


def test_a_manifest_is_read_and_overridden(tmp_path):
    file = tmp_path / "plan.yaml"
    file.write_text(rightsizer.plan(**ASKED, deadline="72h").yaml)
    assert "80h" in rightsizer.plan(manifest=file, deadline="80h").yaml


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_the_documented_examples_run(example, capsys):
    exec(compile(example, "docs/python.md", "exec"), {})  # noqa: S102
    assert capsys.readouterr().out.count("\n") == example.count("print(")


PROMISED = {name: getattr(rightsizer, name) for name in rightsizer.__all__}
VALUES = {name: value for name, value in PROMISED.items() if dataclasses.is_dataclass(value)}


def test_every_promised_name_is_documented():
    rows = dict(re.findall(r"^\| `(\w+)(?:\(\.\.\.\))?` \| (.*) \|$", DOCUMENT, flags=re.M))
    assert set(rows) == set(PROMISED)
    for name, value in VALUES.items():
        assert {field.name for field in dataclasses.fields(value)} <= set(re.findall(r"`(\w+)`", rows[name]))


OPTIONS = {
    rightsizer.plan: (JobFlags, GoalFlags, HardwareFlags, FixedLayoutFlags),
    rightsizer.estimate_layout: (JobFlags, HardwareFlags, LayoutFlags),
}


FIRST_CLAUSE = re.compile(r"[^:;(.,]*")


@pytest.mark.parametrize(("function", "groups"), OPTIONS.items(), ids=["plan", "estimate_layout"])
def test_a_keyword_is_described_as_its_option_is(function, groups):
    """Both texts begin alike; what follows may differ, because Python takes numbers and lists too."""
    hints = {
        name: hint for group in groups for name, hint in get_type_hints(group, include_extras=True).items()
    }
    said = dict(re.findall(r"^    ([a-z_]+): (.*)$", inspect.getdoc(function), flags=re.M))
    pairs = {
        name: (
            FIRST_CLAUSE.match(text)[0].strip(),
            FIRST_CLAUSE.match(get_args(hints[name])[1].help)[0].strip(),
        )
        for name, text in said.items()
        if name in hints
    }
    assert {name: pair for name, pair in pairs.items() if pair[0] != pair[1]} == {}


@pytest.mark.parametrize(("function", "groups"), OPTIONS.items(), ids=["plan", "estimate_layout"])
def test_every_keyword_is_an_option_and_is_described(function, groups):
    keywords = set(inspect.signature(function).parameters)
    options = {field.name for group in groups for field in dataclasses.fields(group)}
    assert keywords - options <= {"manifest", "calibrate"}
    assert keywords == set(re.findall(r"^    ([a-z_]+): ", inspect.getdoc(function), flags=re.M))


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'size'"):
        _ = rightsizer.size

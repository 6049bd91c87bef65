import json
import subprocess
import sys

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from rightsizer_api import dump, load, loads, validate
from rightsizer_engine.errors import InputError

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
    f"{n}: &{n} [{', '.join([f'*{p}'] * 9)}]" for p, n in zip("abcdefg", "bcdefgh", strict=True)
)


def test_a_file_is_loaded(document, tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(document()))
    assert load(path) == validate(document())


def test_json_is_yaml_too(document):
    assert loads(json.dumps(document())) == validate(document())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# nothing", "is empty"),
        ("a: [1", "line 1, column 6.*is not YAML"),
        ("a: 1\na: 2", "line 2, column 1.*the field a is written twice"),
        ("? [a]\n: 1", "a key must be text"),
        ("a: !!python/object:os.system {}", "is not YAML: could not determine a constructor"),
        ("a: \x00", "is not YAML"),
        ("a: &x [*x]", "refers to itself or to nothing"),
        (BOMB, "is too deep or too large"),
        ("[" * 500, "is too deep or too large"),
        ("x" * 600_000, "600000 characters.*has more than 524,288"),
        ("a: 1\n---\nb: 2", "0 of 2 documents.*must hold exactly one TrainingPlan"),
        ("- 1", "is not a mapping"),
    ],
    ids=lambda value: value[:20].strip() or "empty",
)
def test_a_broken_text_is_one_clear_error(text, message):
    with pytest.raises(InputError, match=message):
        loads(text)


@given(st.text(max_size=80))
def test_any_text_is_a_plan_or_an_input_error(text):
    with pytest.raises(InputError):
        loads(text)


def test_the_plan_is_found_among_other_documents(document):
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    text = yaml.safe_dump_all([other, document()])
    assert loads(text) == validate(document())


def test_aliases_are_read(document):
    text = (
        yaml.safe_dump(document())
        .replace("minGPUs: 8", "minGPUs: &n 9")
        .replace("maxGPUs: 256", "maxGPUs: *n")
    )
    assert loads(text).spec.resources.max_gpus == 9


@pytest.mark.parametrize(
    ("written", "read"),
    [("Off", "Off"), ('"Off"', "Off"), ("Auto", "Auto")],
    ids=["bare Off", "quoted Off", "Auto"],
)
def test_words_that_old_yaml_takes_for_booleans_are_words(document, written, read):
    text = yaml.safe_dump(document()).replace("mode: Recommend", f"mode: {written}")
    assert loads(text).spec.elasticity.mode == read


@pytest.mark.parametrize("written", ["1e9", "1.0e+9", "1000000000", "1B", "1000M"])
def test_a_count_may_be_written_in_many_ways(document, written):
    text = yaml.safe_dump(document()).replace("100B", written)
    assert loads(text).spec.workload.tokens in {10**9, "1B", "1000M"}


def test_a_timestamp_survives_the_round_trip(document):
    text = yaml.safe_dump(document()).replace("finishWithin: 72h", "finishBy: 2026-09-30T18:00:00+02:00")
    assert loads(text).model_dump(mode="json")["spec"]["deadline"]["finishBy"] == "2026-09-30T16:00:00Z"


CHANGES = {
    "as it is": {},
    "words and numbers as text": {
        "spec.elasticity.mode": "Off",
        "spec.launch.env": [
            {"name": "A", "value": "1e9"},
            {"name": "B", "value": "no"},
            {"name": "C", "value": ""},
        ],
    },
    "inline config": {
        "spec.model": {"config": {"model_type": "llama", "rope_scaling": None, "x": [1, {"y": None}]}}
    },
    "moment": {"spec.deadline": {"finishBy": "2026-09-30T18:00:00.5Z"}},
    "status": {"status": {"observedGeneration": 2, "eta": "2026-09-30T18:00:00Z"}},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES.keys())
def test_a_dumped_plan_loads_as_the_same_plan(document, changes):
    plan = validate(document(changes))
    assert loads(dump(plan)) == plan
    assert validate(yaml.safe_load(dump(plan))) == plan


def test_a_config_beside_the_manifest_is_read_in(document, tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    path = tmp_path / "plan.yaml"
    path.write_text(yaml.safe_dump(document({"spec.model": {"configPath": "config.json"}})))
    model = load(path).spec.model
    assert (model.config, model.config_path) == ({"model_type": "llama"}, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), ("{", "is not JSON"), ("[]", "is not a JSON object"), ("\xff", "is not JSON")],
    ids=["missing", "broken", "list", "letters"],
)
def test_a_bad_config_names_the_field(document, tmp_path, content, message):
    if content is not None:
        (tmp_path / "c.json").write_text(content, encoding="utf-8")
    text = yaml.safe_dump(document({"spec.model": {"configPath": "c.json"}}))
    with pytest.raises(InputError, match=f"spec.model.configPath: .*{message}"):
        load(text, folder=tmp_path)


def test_without_a_folder_no_file_is_touched(document):
    text = yaml.safe_dump(document({"spec.model": {"configPath": "c.json"}}))
    assert loads(text).spec.model.config_path == "c.json"


def test_an_unreadable_file_is_one_clear_error(tmp_path):
    (tmp_path / "latin.yaml").write_bytes(b"a: \xe9")
    for path, message in ((tmp_path / "none.yaml", "no such file"), (tmp_path, "directory")):
        with pytest.raises(InputError, match=message):
            load(path)
    with pytest.raises(InputError, match="is not UTF-8 text"):
        load(tmp_path / "latin.yaml")


FIRST_THREADS = """
import sys, threading
from rightsizer_api import validate
sys.setswitchinterval(1e-6)
together, faults = threading.Barrier(8), []
def read():
    together.wait()
    try:
        validate({"apiVersion": "rightsizer.dev/v1alpha1", "kind": "TrainingPlan"})
    except ValueError:  # an empty document has its own error
        pass
    except BaseException as error:
        faults.append(error)
threads = [threading.Thread(target=read) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not faults, faults
"""


def test_the_first_plans_of_a_process_may_come_from_several_threads():
    done = subprocess.run([sys.executable, "-c", FIRST_THREADS], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

"""scripts/ci.py with suites of a line; the table of suites; the verbs that texts name."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib

import pytest
from tests.house.test_house import ROOT, tracked

sys.path.append(str(ROOT / "scripts"))  # scripts are run from the repository, not installed
import ci
import suites as table
from suites import Suite

VERBS = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def suite(name, *commands):
    return Suite(name=name, says="", commands=commands)


@pytest.fixture
def runner(tmp_path):
    return ci.Runner(logs=tmp_path)


def test_a_suite_that_fails_stops_no_other_and_is_named_at_the_end(runner, capfd):
    found = runner.run([[suite("first", "exit 3"), suite("second", "true")], [suite("third", "echo done")]])
    assert [(result.suite, result.code) for result in found] == [("first", 3), ("second", 0), ("third", 0)]
    assert ci.ended(found) == 1
    out = capfd.readouterr().out
    assert "first: failed with exit code 3" in out
    assert out.endswith("failed: first\n")


def test_with_no_failure_the_exit_code_is_0(runner):
    assert ci.ended(runner.run([[suite("one", "true")]])) == 0


def test_the_first_command_that_fails_ends_its_suite(runner, capfd):
    (found,) = runner.run([[suite("one", "false | cat", "echo never")]])
    assert (found.code, "never" in capfd.readouterr().out) == (1, False)


def test_the_output_of_a_suite_comes_in_one_piece(runner, tmp_path, capfd):
    """Each prints its second line once the other has printed its first."""
    waits = "echo {0} 1; touch {1}/{0}; until [ -e {1}/{2} ]; do sleep 0.01; done; echo {0} 2"
    pair = [suite(name, waits.format(name, tmp_path, other)) for name, other in ("ab", "ba")]
    runner.run([[one] for one in pair])
    printed = [line for line in capfd.readouterr().out.splitlines() if not line.startswith("==")]
    assert printed in (["a 1", "a 2", "b 1", "b 2"], ["b 1", "b 2", "a 1", "a 2"])


def test_the_result_of_a_killed_suite_names_the_signal(runner):
    (found,) = runner.run([[suite("one", "kill -KILL $$")]])
    assert found.line().startswith("one: was killed by SIGKILL")
    assert ci.ended([found]) == 1


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


SERVER = """\
import pathlib, signal, subprocess, sys
child = subprocess.Popen(["bash", "-c", "trap '' INT; exec sleep 1000"])
try:
    pathlib.Path(sys.argv[1] + ".new").write_text(str(child.pid))
    pathlib.Path(sys.argv[1] + ".new").rename(sys.argv[1])
    signal.pause()
except KeyboardInterrupt:
    print("removed", flush=True)
"""
"""It cleans up when it is interrupted, and leaves a child that ignores the interruption."""

RUN = """\
import sys
sys.path.append("scripts")
import ci
from suites import Suite
suites = {name: Suite(name=name, says="", commands=(sys.argv[1],)) for name in ("one", "next")}
sys.exit(ci.program(["run", "one", "next"], suites))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interruption_lets_the_suite_clean_up_and_ends_its_children(tmp_path, number):
    server = shlex.join([sys.executable, "-c", SERVER, str(tmp_path / "pid")])
    program = subprocess.Popen(
        [sys.executable, "-c", RUN, server], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    while not (tmp_path / "pid").exists():
        assert program.poll() is None
        time.sleep(0.01)
    program.send_signal(number)
    out, _ = program.communicate()
    assert (program.returncode, "removed" in out, "== next" in out) == (ci.INTERRUPTED, True, False)
    while alive(int((tmp_path / "pid").read_text())):  # until init has reaped it
        time.sleep(0.01)


def test_an_unknown_suite_is_refused(capfd):
    with pytest.raises(SystemExit) as refused:
        ci.main(["run", "none"])
    assert (refused.value.code, "invalid choice: 'none'" in capfd.readouterr().err) == (2, True)


def test_every_series_names_suites_of_the_table_and_none_twice():
    for series in (table.CHECK, table.QUICK, table.CI, table.NIGHTLY):
        names = [name for one in series for name in one.suites]
        assert set(names) <= set(ci.BY_NAME)
        assert len(names) == len(set(names))
    assert len(ci.BY_NAME) == len(table.SUITES)


def test_ci_and_the_night_run_all_that_checks():
    by_hand = {"binaries", "mutants", "coverage", "pictures"}
    run = {
        name
        for series in (table.CHECK, table.CI, table.NIGHTLY, table.QUICK)
        for one in series
        for name in one.suites
    }
    assert run == set(ci.BY_NAME) - by_hand
    assert {name for one in table.CHECK for name in one.suites} <= {
        name for series in (table.QUICK, table.CI) for one in series for name in one.suites
    }


def test_every_marker_of_a_test_is_run_by_a_suite():
    markers = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["markers"]
    selected = {word for one in table.SUITES for text in one.commands for word in re.findall(r"[a-z]+", text)}
    assert {marker.partition(":")[0] for marker in markers} <= selected


def test_files_and_tests_that_the_suites_name_exist():
    text = "\n".join(command for one in table.SUITES for command in one.commands)
    named = re.findall(r"((?:tests|scripts|bench)/[\w/]+\.(?:sh|py))(?:::(\w+))?", text)
    assert named
    assert not [file for file, _ in named if not (ROOT / file).is_file()]
    assert not [test for file, test in named if test and f"def {test}(" not in (ROOT / file).read_text()]


def test_the_commands_of_every_suite_are_bash():
    scripts = "\n".join("\n".join(one.commands) for one in table.SUITES)
    checked = subprocess.run(["bash", "-n"], input=scripts, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_the_list_has_a_line_for_each_suite(capfd):
    assert ci.main(["list"]) == 0
    lines = capfd.readouterr().out.splitlines()[1:]
    assert [line.split()[0] for line in lines] == list(ci.BY_NAME)


BEFORE_A_VERB = r"`|\b[Rr]un |\bexec |run: |# (?=make [a-z-]+:)|no [A-Z]\w+: "
IN_A_BLOCK = r"^ {4}(?:\$ )?"


def named_verbs(text, *, page=False):
    """The verbs of make in backticks, commands and messages; of a page also those of its blocks."""
    before = f"{BEFORE_A_VERB}|{IN_A_BLOCK}" if page else BEFORE_A_VERB
    found = re.findall(rf"(?:{before})(?:[A-Z_]+=\S+ )*make ([a-z][a-z-]*)", text, flags=re.MULTILINE)
    return set(found)


def test_every_verb_of_make_and_every_suite_that_a_text_names_exists():
    gone = {}
    for path in tracked(".md", ".py", ".sh", ".yml", ".yaml", ".toml", ".ci/run"):
        if path.is_file() and path.name != "test_ci.py":
            text = path.read_text()
            names = set(re.findall(r"SUITE=\"?([a-z][a-z-]*)|ci\.py run ([a-z-]+)", text))
            suites = {name for found in names for name in found if name}
            gone[str(path.relative_to(ROOT))] = (named_verbs(text, page=path.suffix == ".md") - VERBS) | (
                suites - set(ci.BY_NAME)
            )
    assert not {path: names for path, names in gone.items() if names}


def test_a_verb_that_is_gone_is_seen():
    text = (
        "run `make test-slurm`\n\n    make slurm-up  # x\n\nyou make it: `A=1 make nothing`; run make never"
    )
    assert named_verbs(text, page=True) == {"test-slurm", "slurm-up", "nothing", "never"}

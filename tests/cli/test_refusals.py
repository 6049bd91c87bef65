"""A refusal of the system is one line and an exit code: every command, every option that writes.

Commands and options are those of the command line: a new one fails here until it is listed.
"""

import contextlib
import io
import socket
import subprocess
import sys

import pytest
import typer
from tests.cli.commands.test_schema import RUNS, TRACE
from tests.slurm.conftest import FakeSlurm
from typer.main import get_command

from rightsizer_cli.kubectl import main as kubectl
from rightsizer_cli.main import build, execute, outcome

GPT2 = ("--model", "gpt2", "--tokens", "1B", "--gpu", "H100")
PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: small}
spec:
  model: {dimensions: {layers: 4, hidden: 192, heads: 4, vocab: 256}}
  workload: {tokens: 1M, sequenceLength: 128}
  resources: {gpuTypes: [h100], maxGPUs: 8}
  launch: {framework: ddp, command: [train.py]}
"""


def leaves(group, *words):
    """(words, command) of every command of a group."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, *words, name)
        else:
            yield " ".join((*words, name)), command


COMMANDS = dict(leaves(get_command(build()))) | dict(leaves(get_command(kubectl.build()), "kubectl"))


def run(line: str, *arguments: str) -> int:
    words = line.split()
    if words[0] == "kubectl":
        return kubectl.execute([*words[1:], *arguments])
    return execute([*words, *arguments])


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with files and Slurm's commands, no kubectl, and nowhere to keep anything."""
    slurm = FakeSlurm(tmp_path)
    slurm.prints("config", f"SLURM_CONF = {tmp_path}/slurm.conf\n")
    for name, text in {"plan.yaml": PLAN, "runs.csv": RUNS, "trace.csv": TRACE, "file": ""}.items():
        (tmp_path / name).write_text(text)
    for name, value in {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": f"{tmp_path}/file"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(code: int, err: str) -> None:
    """One line, and not success."""
    assert code in {1, 2}
    assert err.startswith("error: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("line", COMMANDS)
def test_help_on_a_full_disk_is_one_line(line, capsys):
    with open("/dev/full", "w") as full, contextlib.redirect_stdout(full):
        code = run(line, "--help")
    refused(code, capsys.readouterr().err)


PRINTING = {
    "plan": GPT2,
    "estimate": GPT2,
    "explain": GPT2,
    "advise": (*GPT2, "--gpus", "8", "--tokens-per-second", "4e5", "--tokens-done", "1M"),
    "calibrate": ("--show", "--file", "none.json"),
    "simulate": ("trace.csv",),
    "doctor": ("machine",),
    "models": (),
    "gpus": (),
    "nodes": (),
    "frameworks": (),
    "crd": (),
    "schema": ("plan",),
    "version": (),
    "sbatch": ("plan.yaml", "--dry-run"),
    "slurm report": (),
    "slurm install": (),
}
"""What prints an answer here."""

ELSEWHERE = {
    "run": ("none.yaml",),
    "probe": ("none.yaml",),
    "report": ("--prometheus", "http://127.0.0.1:9"),
    "serve": ("--port", "none"),
    "operator": ("--log-format", "none"),
    "slurm daemon": ("--config", "none.conf"),
    "slurm monitor": ("--state", "file/none"),
    "slurm resize": ("7", "--nodes", "2", "--state", "file/none"),
    "kubectl plan": ("demo",),
    "kubectl explain": ("demo",),
    "kubectl probe": ("demo",),
    "kubectl why": ("demo",),
    "kubectl status": (),
    "kubectl resize": ("demo", "--gpus", "2"),
    "kubectl suspend": ("demo",),
    "kubectl resume": ("demo",),
}
"""What needs a cluster, a server or a script: here it has none."""


def test_every_command_is_listed_here():
    assert set(COMMANDS) == set(PRINTING) | set(ELSEWHERE)


IMPORTS_TORCH = {"doctor"}
ANSWERS = [
    pytest.param(line, given, id=line, marks=[pytest.mark.slow] if line in IMPORTS_TORCH else [])
    for line, given in (PRINTING | ELSEWHERE).items()
]


@pytest.mark.parametrize(("line", "given"), ANSWERS)
def test_an_output_on_a_full_disk_is_one_line(line, given, place, capsys):
    with open("/dev/full", "w") as full, contextlib.redirect_stdout(full):
        code = run(line, *given)
    refused(code, capsys.readouterr().err)


WRITES = {
    ("plan", "--plot"): (*GPT2, "--plot", "{}.svg"),
    ("estimate", "--out"): ("--runs", "runs.csv", "--out", "{}"),
    ("calibrate", "--file"): ("--runs", "runs.csv", "--file", "{}"),
    ("simulate", "--plot"): ("trace.csv", "--plot", "{}.svg"),
    ("run", "--dir"): ("plan.yaml", "--dir", "{}"),
    ("probe", "--dir"): ("plan.yaml", "--dir", "{}"),
    ("sbatch", "--dir"): ("plan.yaml", "--dir", "{}"),
    ("slurm monitor", "--state"): ("--sweeps", "1", "--state", "{}"),
    ("slurm monitor", "--textfile"): ("--sweeps", "1", "--state", "s.db", "--textfile", "{}"),
    ("slurm resize", "--state"): ("7", "--nodes", "2", "--state", "{}"),
    ("slurm install", "--root"): ("--place", "--root", "{}"),
    ("slurm install", "--etc"): ("--place", "--etc", "{}"),
}
READS = {
    ("report", "--html"),  # written after a server's answer: tests/cli/commands/test_report.py
    ("plan", "--config"), ("estimate", "--config"), ("explain", "--config"), ("advise", "--config"),
    ("plan", "--dataset"), ("estimate", "--dataset"), ("explain", "--dataset"), ("advise", "--dataset"),
    ("estimate", "--runs"), ("calibrate", "--runs"), ("advise", "--log"), ("slurm report", "--state"),
    ("report", "--ca-file"), ("report", "--cert-file"), ("report", "--key-file"), ("report", "--token-file"),
    ("report", "--password-file"), ("slurm report", "--token-file"), ("slurm monitor", "--token-file"),
    ("operator", "--prometheus-ca-file"), ("operator", "--prometheus-token-file"),
    ("slurm daemon", "--config"), ("slurm install", "--print"), ("kubectl plan", "--file"),
    ("kubectl explain", "--file"), ("kubectl probe", "--file"),
}  # fmt: skip


def test_every_option_with_a_path_is_listed_here():
    found = {
        (line, next(word for word in parameter.opts if word.startswith("--")))
        for line, command in COMMANDS.items()
        for parameter in command.params
        if parameter.metavar in {"FILE", "DIR", "CSV", "PEM"} and parameter.opts[0].startswith("-")
    }
    found = {(line, option) for line, option in found if option not in {"--kubeconfig"}}
    assert found == set(WRITES) | READS


@pytest.mark.parametrize("target", ["file/below", "/proc/none/below"], ids=["below a file", "no such folder"])
@pytest.mark.parametrize(("line", "option"), WRITES, ids=map(" ".join, WRITES))
def test_a_place_that_cannot_be_written_is_one_line(line, option, target, place, capsys):
    target = target if target.startswith("/") else str(place / target)
    code = run(line, *(word.replace("{}", target) for word in WRITES[line, option]))
    refused(code, capsys.readouterr().err)


def test_the_monitor_of_a_user_without_a_home_is_one_line(place, capsys):
    refused(run("slurm monitor", "--sweeps", "1"), capsys.readouterr().err)


@pytest.mark.parametrize(("closed", "code", "said"), [(">&-", 1, 1), ("2>&-", 0, 0), ("<&-", 0, 0)])
@pytest.mark.parametrize("module", ["cli.start", "cli.kubectl.main"])
def test_an_output_is_not_lost_on_a_closed_stdout(module, closed, code, said):
    program = f"from rightsizer_{module} import main; main()"
    shell = f'"$0" -c "{program}" --help {closed}'
    done = subprocess.run(["sh", "-c", shell, sys.executable], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (code, said)
    assert done.stdout.startswith("Usage: ") is not bool(code)


@pytest.mark.parametrize("text", [None, io.StringIO("\udcff\udcfe")], ids=["closed", "bytes"])
def test_a_stdin_without_text_is_one_line(text, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", text)
    refused(run("plan", "-"), capsys.readouterr().err)


@pytest.mark.parametrize(
    ("line", "given"),
    {"calibrate": ("--show", "--file", "/dev/zero"), "slurm daemon": ("--config", "/dev/zero"),
     "plan": ("/dev/zero",),
     "report": ("--prometheus", "http://127.0.0.1:9", "--token-file", "/dev/zero")}.items(),
    ids=str,
)  # fmt: skip
def test_a_device_without_an_end_is_one_line(line, given, capsys):
    refused(run(line, *given), capsys.readouterr().err)


@pytest.mark.parametrize(("encoding", "text"), [("latin-1", "\u2026"), ("utf-8", "\udcff")])
def test_text_that_the_output_cannot_hold_is_one_line(encoding, text, capsys):
    app = typer.Typer()
    app.command()(lambda: typer.echo(text))
    with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding=encoding)):
        assert outcome(app, ["--"], program="write") == 1
    refused(1, capsys.readouterr().err)


def test_the_middle_of_a_long_value_is_left_out(capsys):
    assert execute(["plan", "x" * 100_000]) == 2
    error = capsys.readouterr().err
    assert error.endswith("file name too long\n")
    assert len(error) < 2100


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf", "1e400"])
def test_a_rate_that_no_job_has_is_one_line(rate, capsys):
    code = run("advise", *GPT2, "--gpus", "8", "--tokens-done", "1M", f"--tokens-per-second={rate}")
    refused(code, capsys.readouterr().err)


def test_a_table_of_which_no_row_is_predicted_is_no_success(place, capsys):
    (place / "runs.csv").write_text(RUNS.replace("H100-SXM5-80GB", "NONE-80GB"))
    assert run("estimate", "--runs", "runs.csv", "--out", "out.csv") == 2
    assert capsys.readouterr().err == "0 rows predicted, 1 unsupported: out.csv\n"


def test_a_port_that_is_taken_is_one_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        refused(run("serve", "--no-browser", "--port", str(other.getsockname()[1])), capsys.readouterr().err)


def test_the_operator_without_a_cluster_is_one_line(place):
    script = (
        "import os, sys\nfrom rightsizer_cli.main import execute\n"
        "for os.environ['KUBECONFIG'] in sys.argv[1:]: print(execute(['operator']), file=sys.stderr)"
    )
    kubeconfigs = ("none", ".", "trace.csv", "plan.yaml", "scontrol", "/dev/null")
    done = subprocess.run(
        [sys.executable, "-c", script, *kubeconfigs],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(place / "file")},
    )
    lines = done.stderr.splitlines(keepends=True)
    assert len(lines) == 2 * len(kubeconfigs), done.stderr
    for line, code in zip(lines[::2], lines[1::2], strict=True):
        refused(int(code), line)


def test_plans_are_sized_where_there_are_no_posix_modules():
    script = (
        "import sys\nfor name in ('fcntl', 'resource', 'pwd', 'grp', 'termios'): sys.modules[name] = None\n"
        "import rightsizer; print(rightsizer.plan(model='gpt2', tokens='1B', gpu='H100').verdict)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")

"""The entry point: quick help, exit codes, one-line errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from shellingham import ShellDetectionFailure

from rightsizer_cli.main import COMMANDS, execute, outcome, undetected_shell

HEAVY = {"numpy", "pydantic", "torch", "matplotlib", "rich", "yaml", "kopf", "prometheus_client"}
SMALL = ["--model", "gpt2", "--tokens", "1B", "--gpu", "A100-SXM4-40GB", "--gpus", "8"]


def test_help_of_every_command_imports_nothing_heavy():
    names = [[], *([name] for name in COMMANDS)]
    script = (
        "import json, sys; from rightsizer_cli.main import execute\n"
        f"codes = [execute([*name, '--help']) for name in {names!r}]\n"
        "print(json.dumps({'codes': codes, 'modules': sorted(sys.modules)}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    found = json.loads(done.stderr)
    assert not any(found["codes"])
    assert not HEAVY & set(found["modules"])


def test_no_arguments_shows_help(capsys):
    assert execute([]) == 0
    assert "Usage: rightsizer" in capsys.readouterr().out


@pytest.mark.parametrize("args", [["--version"], ["-V"], ["version"]], ids=" ".join)
def test_version_is_printed(args, capsys):
    assert execute(args) == 0
    assert capsys.readouterr().out.startswith("rightsizer ")


def test_a_plan_exits_with_0(capsys):
    assert execute(["plan", *SMALL]) == 0
    assert capsys.readouterr().out.startswith("8 A100-SXM4-40GB")


def test_no_plan_exits_with_3_and_names_the_binding_limit(capsys):
    assert execute(["plan", *SMALL, "--deadline", "1m"]) == 3
    out = capsys.readouterr().out
    assert out.startswith("no plan: ")
    assert "Nearest" in out


@pytest.mark.parametrize("args", [["version"], ["--help"], ["crd"]], ids=" ".join)
def test_a_full_disk_is_one_line_and_exits_with_1(args):
    with Path("/dev/full").open("w") as full:
        script = "from rightsizer_cli.start import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", script, *args], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (1, "error: output: No space left on device\n")


def test_what_the_system_refuses_is_one_line_and_exits_with_1(capsys):
    app = typer.Typer()

    @app.command()
    def write(path: str):
        raise PermissionError(13, "Permission denied", path)

    assert outcome(app, ["/run/rightsizer"], program="write") == 1
    assert capsys.readouterr().err == "error: /run/rightsizer: Permission denied\n"


BAD = {
    "quantity": (["--tokens", "12 parsecs"], "--tokens: '12 parsecs'"),
    "duration without unit": (["--deadline", "72"], "--deadline: '72'"),
    "model": (["--model", "lama-3"], "--model: 'lama-3'"),
    "gpu": (["--gpu", "H1000"], "--gpu: 'H1000'"),
    "choice": (["--precision", "bf17"], "--precision: 'bf17'"),
    "framework": (["--framework", "megatrn"], "--framework: 'megatrn'"),
    "range": (["--confidence", "1.5"], "--confidence: 1.5"),
    "min above max": (["--min-gpus", "64", "--max-gpus", "8"], "--min-gpus: 64"),
    "past": (["--finish-by", "2020-01-01T00:00:00Z"], "--finish-by: '2020-01-01T00:00:00Z'"),
    "two deadlines": (["--deadline", "3d", "--finish-by", "2099-01-01T00:00:00Z"], "exactly one of"),
    "not a number": (["--max-gpus", "many"], "--max-gpus"),
    "unknown option": (["--gpuss", "8"], "No such option: --gpuss"),
    "no such config": (["--config", "nowhere.json"], "--config: 'nowhere.json'"),
    "output": (["--output", "xml"], "--output: 'xml'"),
    "plot": (["--plot", "curve.gif"], "--plot: 'curve.gif'"),
}


@pytest.mark.parametrize(("args", "message"), BAD.values(), ids=BAD.keys())
def test_bad_input_is_one_line_and_exits_with_2(args, message, capsys):
    base = ["--model", "gpt2", "--tokens", "1B", "--gpu", "A100-SXM4-40GB", "--max-gpus", "8"]
    assert execute(["plan", *base, *args]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not out


@pytest.mark.parametrize(
    "args",
    [
        ["plan"],
        ["plan", "nowhere.yaml"],
        ["plam"],
        ["run", "nowhere.yaml"],
        ["models", "gtp2"],
        ["gpus", "H1000"],
        ["estimate", "--out", "x.csv"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_is_one_line_and_exits_with_2(args, capsys):
    assert execute(args) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_missing_value_is_not_shown_as_none(capsys):
    assert execute(["plan", "--model", "gpt2", "--tokens", "1B"]) == 2
    assert capsys.readouterr().err.startswith("error: --gpu: name at least one")


@pytest.mark.slow
def test_ctrl_c_is_quiet():
    script = (
        "import io, sys; from rightsizer_cli.main import execute\n"
        "class Interrupted(io.StringIO):\n"
        "    def read(self, *_): raise KeyboardInterrupt\n"
        "sys.stdin = Interrupted(); sys.exit(execute(['plan', '-']))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.slow
def test_a_closed_pipe_is_quiet():
    script = "import sys; from rightsizer_cli.main import execute; sys.exit(execute(['models', '--json']))"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe) as child:
        child.stdout.read(10)
        child.stdout.close()
        err = child.stderr.read()
    assert not err


def test_a_fault_of_ours_is_not_hidden():
    with pytest.raises(AttributeError):
        execute(["plan", None])  # type: ignore[list-item]


@pytest.mark.parametrize("command", ["models", "gpus"])
def test_catalog_lists_as_table_and_json(command, capsys):
    assert execute([command]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert execute([command, "--json"]) == 0
    nouns = json.loads(capsys.readouterr().out)
    assert len(lines) > len(nouns) > 40
    widest = 100 if command == "gpus" else 140  # no id of a model is cut or folded
    assert all(len(line) <= widest and line == line.rstrip() and "\u2026" not in line for line in lines)


@pytest.mark.parametrize("args", [["models", "gpt2"], ["gpus", "h100"]], ids=" ".join)
def test_one_noun_shows_its_fields(args, capsys):
    assert execute(args) == 0
    assert "source" in capsys.readouterr().out


def test_crd_is_the_committed_one(capsys):
    assert execute(["crd"]) == 0
    assert "kind: CustomResourceDefinition" in capsys.readouterr().out


@pytest.mark.parametrize("error", [ShellDetectionFailure(), OSError("ps not found")], ids=["none", "no-ps"])
def test_an_undetected_shell_is_reported_with_the_remedy(error):
    def detect():
        raise error

    why = undetected_shell(detect)
    assert why.startswith("the shell cannot be detected")
    assert str(error) in why
    assert "_RIGHTSIZER_COMPLETE=source_bash rightsizer" in why


def test_windows_users_get_the_pointer_to_wsl():
    script = "import os; os.name = 'nt'; from rightsizer_cli.start import main; main()"
    done = subprocess.run([sys.executable, "-c", script, "plan"], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "run it in WSL" in done.stderr

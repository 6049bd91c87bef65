"""--plot: a curve, or an error before any work."""

import importlib
from pathlib import Path

import pytest

from rightsizer_cli.main import execute
from rightsizer_cli.output.figures import check_plot
from rightsizer_engine.errors import InputError

pytestmark = pytest.mark.slow  # matplotlib takes seconds to start

PLAN = [
    "plan",
    "--model",
    "gpt2",
    "--tokens",
    "10B",
    "--deadline",
    "3d",
    "--gpu",
    "A100-SXM4-40GB",
    "--max-gpus",
    "16",
]


PRICED = [*PLAN, "--budget", "$1k", "--plot"]


@pytest.fixture(scope="module")
def curve(tmp_path_factory):
    file = tmp_path_factory.mktemp("plot") / "curve.svg"
    assert execute([*PRICED, str(file)]) == 0
    return file


def test_svg_shows_the_fan_the_choice_the_deadline_and_the_budget(curve):
    drawn = curve.read_text()
    assert all(word in drawn for word in ("80 % interval", "deadline", "budget", "chosen: ", "US dollars"))
    assert list(curve.parent.iterdir()) == [curve]


def test_an_opening_shows_its_likely_size_and_reserve(tmp_path):
    file = tmp_path / "opening.svg"
    asked = [*PLAN, "--tokens", "100B", "--gpu", "H100", "--model", "Llama-3.1-8B", "--max-gpus", "512"]
    assert execute([*asked, "--plot", str(file)]) == 0
    drawn = file.read_text()
    assert all(word in drawn for word in ("opens with ", "never more than ", "reserve: "))


def test_the_same_plan_draws_the_same_bytes(curve, tmp_path):
    again = tmp_path / "again.svg"
    assert execute([*PRICED, str(again)]) == 0
    assert again.read_bytes() == curve.read_bytes()


@pytest.mark.parametrize(("ending", "start"), [("PNG", b"\x89PNG"), ("pdf", b"%PDF")])
def test_the_ending_names_the_format(tmp_path, ending, start):
    file = tmp_path / f"curve.{ending}"
    assert execute([*PLAN, "--plot", str(file)]) == 0
    assert file.read_bytes().startswith(start)


def test_each_gpu_type_has_its_fan(tmp_path):
    file = tmp_path / "types.svg"
    assert execute([*PLAN, "--gpu", "A100-SXM4-40GB", "--gpu", "L40S", "--plot", str(file)]) == 0
    assert all(f"{gpu}: median" in file.read_text() for gpu in ("A100-SXM4-40GB", "L40S"))


@pytest.mark.parametrize("name", ["curve.jpg", "curve", "svg", "curve.svg.txt"])
def test_other_endings_are_refused(name):
    with pytest.raises(InputError, match=r"must end in \.svg, \.png or \.pdf"):
        check_plot(Path(name))


def test_without_matplotlib_the_extra_is_named():
    def absent(name: str):
        return importlib.import_module(f"no_such_{name}")

    with pytest.raises(InputError, match=r"pip install 'rightsizer\[plot\]'"):
        check_plot(Path("curve.svg"), find=absent)


def test_no_plan_draws_nothing_and_prints_a_note(tmp_path, capsys):
    assert execute([*PLAN, "--deadline", "10s", "--plot", str(tmp_path / "curve.svg")]) == 3
    assert "--plot" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_an_unwritable_place_is_one_error(tmp_path, capsys):
    assert execute([*PLAN, "--plot", str(tmp_path / "no" / "curve.svg")]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("error: --plot: ")
    assert not out

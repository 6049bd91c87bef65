"""The docs name every command, option, field, metric, path and page, and their commands work."""

import re
import sys
from pathlib import Path
from pydoc import ErrorDuringImport, locate

import pytest
from pydantic import BaseModel
from tests.checkout import PACKAGES
from typer.main import get_command

from rightsizer_api import TrainingPlan
from rightsizer_api.errors import wire_fields
from rightsizer_cli.main import build
from rightsizer_launch.worker.metrics import NAMES

ROOT = Path(__file__).parents[2]
DOCS = {p.name: p.read_text() for p in [*ROOT.glob("docs/*.md"), ROOT / "README.md"]}
COMMANDS = get_command(build()).commands


def section(command: str) -> str:
    """The part of docs/commands.md about one command."""
    return re.split(r"^## ", DOCS["commands.md"].split(f"## {command}\n")[1], flags=re.M)[0]


def parameters(command: str) -> list:
    """The parameters of a command, and of a group's commands."""
    top = COMMANDS[command]
    return [p for each in (top, *getattr(top, "commands", {}).values()) for p in each.params]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_section_with_an_example(command):
    assert f"rightsizer {command}" in section(command)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_in_its_command_s_section(command):
    options = {opt for p in parameters(command) for opt in p.opts if opt.startswith("--")}
    told = (
        section(command) + DOCS["commands.md"].split("## Options that commands share\n")[1].split("\n## ")[0]
    )
    assert not {o for o in options if f"`{o}" not in told}


def fields(model: type[BaseModel]) -> set[str]:
    """Every field of a document, by the name it has there."""
    found, models = set(), [model]
    while models:
        here = models.pop()
        for name, field in wire_fields(here).items():
            if name not in found:
                found.add(name)
                models += nested(field.annotation)
    return found


def nested(annotation) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in getattr(annotation, "__args__", ()) for model in nested(part)]


def test_every_field_of_a_plan_is_named():
    reference = DOCS["plan-reference.md"]
    assert not {name for name in fields(TrainingPlan) if not re.search(rf"\b{name}\b", reference)}


@pytest.mark.parametrize("metric", NAMES)
def test_every_metric_is_named(metric):
    assert any(f"`{metric}`" in text for text in DOCS.values())


def test_the_documented_commands_parse():
    told = re.findall(
        r"^[ ]*(?:\$ )?rightsizer (\w+)((?:.*\\\n)*.*)$", DOCS["commands.md"] + DOCS["README.md"], flags=re.M
    )
    known = {name: {o for p in parameters(name) for o in (*p.opts, *p.secondary_opts)} for name in COMMANDS}
    wrong = [
        f"{name} {flag}"
        for name, rest in told
        for flag in re.findall(r"(?<!\S)--[a-z-]+", rest.partition(" | ")[0])  # a pipe ends the command
        if name not in known or flag not in known[name] | {"--help"}
    ]
    assert told
    assert not wrong


PAGES = {
    str(p.relative_to(ROOT)): p.read_text()
    for p in [*ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/notes/*.md"), *ROOT.glob("*.md")]
}
FOLDERS = "|".join((*PACKAGES, "tests", "bench", "examples", "deploy", "helm", "scripts", "docs"))
NO_MODULES = "dev|test|conf|lua|github"  # the API group, hosts, files


@pytest.mark.parametrize("page", PAGES)
def test_every_path_in_the_docs_exists(page):
    paths = re.findall(rf"(?<![\w./<=-])(?:{FOLDERS})/[\w./-]*\w", PAGES[page])
    assert not [path for path in paths if "NAME" not in path and not (ROOT / path).exists()]


def is_there(name: str) -> bool:
    """Whether a module is there, or a name in one; a callback's module imports a stack that may not be."""
    try:
        return locate(name) is not None
    except ErrorDuringImport as error:
        return isinstance(error.value, ModuleNotFoundError) and not str(error.value.name).startswith(
            "rightsizer"
        )


@pytest.mark.parametrize("page", PAGES)
def test_every_module_in_the_docs_exists(page):
    names = re.findall(rf"\brightsizer(?:_[a-z]+)?\.(?!(?:{NO_MODULES})(?:\b|_))[a-z_.]*[a-z]", PAGES[page])
    assert not [name for name in names if not is_there(name)]


CONTRIBUTING = PAGES["CONTRIBUTING.md"]


def test_every_layer_to_contribute_to_has_tests():
    layers = re.findall(r"LAYER=([\w/]+)", CONTRIBUTING)
    assert layers
    assert all((ROOT / "tests" / layer).is_dir() for layer in layers)


@pytest.mark.parametrize(("name", "file"), re.findall(r"`([A-Z_]\w+)` in `([\w/.]+\.py)`", CONTRIBUTING))
def test_every_name_to_extend_is_in_the_file_that_the_guide_names(name, file):
    assert re.search(rf"^(class )?{name}\b", (ROOT / file).read_text(), flags=re.M)


def test_the_tools_to_call_are_installed():
    tools = set(re.findall(r"\.venv/bin/([\w-]+)", CONTRIBUTING))
    assert tools
    assert all(Path(sys.executable).with_name(tool).exists() for tool in tools)


def linked(page: Path) -> set[Path]:
    """The files that a page links to."""
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    return {(page.parent / link).resolve() for link in links}


def test_the_first_page_links_to_every_page():
    pages = {
        *ROOT.glob("docs/*.md"),
        *ROOT.glob("docs/tutorials/*.md"),
        *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "AGENTS.md")),
    }
    assert pages - {ROOT / "docs/index.md"} <= linked(ROOT / "docs/index.md")


def test_the_readme_leads_to_the_first_page_in_at_most_700_words():
    assert ROOT / "docs/index.md" in linked(ROOT / "README.md")
    assert len(DOCS["README.md"].split()) <= 700


@pytest.mark.parametrize("page", ["README.md", "index.md"])
def test_the_front_pages_open_with_a_command_and_its_output(page):
    opening = DOCS[page].split("\n## ")[0]
    assert re.search(r"^    \$ rightsizer plan .*\n    \d+ \S+ .* done in ", opening, flags=re.M)


INSTALLER = r"helm install|uv tool install|apt-get install|.*\bpip install (?:--upgrade )?rightsizer\b"
INSTALLING = rf"^(?:\s{{4}})?(?:\$ )?(?:{INSTALLER})"
TOLD = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/README.md"), *ROOT.glob("*.md")]


@pytest.mark.parametrize(
    "page", [each.relative_to(ROOT) for each in TOLD if each.name != "install.md"], ids=str
)
def test_only_the_install_page_has_install_commands(page):
    assert not re.findall(INSTALLING, (ROOT / page).read_text(), flags=re.M)


FORMULAS = sorted(ROOT.glob("docs/engine/*.md"))
PARTS = ["Legend", "Formula", "Derivation", "Source", "Known error", "Computed by"]


@pytest.mark.parametrize("page", FORMULAS, ids=lambda page: page.stem)
def test_a_formula_has_legend_derivation_source_error_and_module(page):
    text = page.read_text()
    assert re.findall(r"^## (.+)", text, flags=re.M) == PARTS
    modules = re.findall(r"`([\w/]+\.py)`", text.split("## Computed by")[1])
    assert modules
    assert all(list(ROOT.glob(f"sizing/*/{module}")) for module in modules)


def test_the_engine_page_maps_every_formula():
    assert FORMULAS
    assert set(FORMULAS) <= linked(ROOT / "docs/engine.md")

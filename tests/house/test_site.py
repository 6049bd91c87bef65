"""The hooks of `make docs`."""

import runpy
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from mkdocs.config import load_config
from mkdocs.exceptions import PluginError

ROOT = Path(__file__).parents[2]
HOOKS = runpy.run_path(str(ROOT / "scripts/site_hooks.py"))
CONFIG = SimpleNamespace(extra={"source": "https://host/main"}, docs_dir="docs", nav=[])


def page(name="tutorials/laptop.md"):
    return SimpleNamespace(file=SimpleNamespace(src_uri=name))


@pytest.mark.parametrize(
    ("link", "led"),
    [
        ("(../install.md#laptop)", "(../install.md#laptop)"),
        ("(../../CHANGELOG.md#a)", "(https://host/main/CHANGELOG.md#a)"),
        ("(../../examples/01-local/)", "(https://host/main/examples/01-local)"),
        ("(https://host/x)", "(https://host/x)"),
        ("(#ask)", "(#ask)"),
    ],
    ids=["page", "file", "folder", "web", "anchor"],
)
def test_a_link_leads_to_a_page_or_to_the_repository(link, led):
    assert HOOKS["on_page_markdown"](f"[x]{link}", page=page(), config=CONFIG, files=()) == f"[x]{led}"


def test_a_link_to_no_file_ends_the_build():
    with pytest.raises(PluginError, match="no file examples/99"):
        HOOKS["on_page_markdown"]("[x](../../examples/99)", page=page(), config=CONFIG, files=())


@pytest.mark.parametrize(
    "html",
    [
        '<script async src="https://host/a.js"></script>',
        "<img src=//host/a.png>",
        '<link rel="stylesheet" href="https://host/font.css">',
    ],
)
def test_a_page_that_loads_from_elsewhere_ends_the_build(html):
    with pytest.raises(PluginError, match="from another server"):
        HOOKS["on_post_page"](f"<a href='https://host/'>{html}", page=page(), config=CONFIG)


def test_a_section_that_names_a_folder_holds_its_pages():
    config = SimpleNamespace(docs_dir=ROOT / "docs", nav=[{"x": ["a.md", {"R": "runbooks/"}]}])
    HOOKS["on_config"](config)
    pages = config.nav[0]["x"][1]["R"]
    assert pages == sorted(pages)
    assert "runbooks/RightsizerPlanLate.md" in pages


@pytest.fixture(scope="module")
def workflow():
    return yaml.safe_load((ROOT / ".github/workflows/docs.yml").read_text())


def test_the_workflow_publishes_what_make_docs_builds(workflow):
    build, deploy = (workflow["jobs"][name]["steps"] for name in ("build", "deploy"))
    at = next(i for i, step in enumerate(build) if step.get("run") == "make docs")
    uploaded = next(step for step in build[at:] if "upload-pages-artifact" in step.get("uses", ""))
    assert ROOT / uploaded["with"]["path"] == Path(load_config(str(ROOT / "mkdocs.yml")).site_dir)
    assert workflow["jobs"]["deploy"]["needs"] == "build"
    assert [step["uses"].partition("@")[0] for step in deploy] == ["actions/deploy-pages"]


def test_only_the_job_that_runs_nothing_of_ours_may_publish(workflow):
    assert workflow["permissions"] == {}
    assert workflow["jobs"]["build"]["permissions"] == {"contents": "read"}
    assert workflow["jobs"]["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert not [step for step in workflow["jobs"]["deploy"]["steps"] if "run" in step]


def test_the_site_is_where_the_package_says_it_is():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert load_config(str(ROOT / "mkdocs.yml")).site_url == urls["Documentation"]
    owner, repository = urls["Source"].removeprefix("https://github.com/").split("/")
    assert urls["Documentation"] == f"https://{owner}.github.io/{repository}/"

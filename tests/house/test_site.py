"""The documentation's site: what scripts/site.py makes of the pages, and what it refuses."""

import runpy
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SITE = runpy.run_path(str(ROOT / "scripts/site.py"))
SOURCE = SITE["SOURCE"]
SETTINGS = (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("(../install.md#laptop)", "(../install.md#laptop)"),
        ("(../../CHANGELOG.md#a)", f"({SOURCE}/CHANGELOG.md#a)"),
        ("(../../examples/01-local/)", f"({SOURCE}/examples/01-local)"),
        ("(https://host/x)", "(https://host/x)"),
        ("(#ask)", "(#ask)"),
    ],
    ids=["page", "file", "folder", "web", "anchor"],
)
def test_a_link_leads_to_a_page_or_to_the_repository(link, expected):
    assert SITE["repository_links"](f"[x]{link}", "tutorials/laptop.md") == f"[x]{expected}"


@pytest.mark.parametrize("link", ["../../examples/99", "../instal.md"])
def test_a_link_to_no_file_ends_the_build(link):
    with pytest.raises(FileNotFoundError, match=r"laptop\.md: no file"):
        SITE["repository_links"](f"[x]({link})", "tutorials/laptop.md")


@pytest.mark.parametrize(
    ("html", "fault"),
    [
        ('<script async src="https://host/a.js"></script>', "from another server: https://host/a.js"),
        ("<img src=//host/a.png>", "from another server: //host/a.png"),
        (
            '<link rel="stylesheet" href="https://host/font.css">',
            "from another server: https://host/font.css",
        ),
        ("<a href='gone.html'>x</a>", "dead link gone.html"),
        ("<img src='gone.png'>", "dead link gone.png"),
        ("<a href='other.html#gone'>x</a>", "dead anchor other.html#gone"),
        ("<a href='#gone'>x</a>", "dead anchor #gone"),
    ],
)
def test_the_built_site_has_no_dead_link_and_loads_nothing_from_elsewhere(tmp_path, html, fault):
    sound = "<a href='https://host/'>x</a><a href='other.html#here'>x</a><p id=top><a href='#top'>x</a>"
    (tmp_path / "page.html").write_text(sound)
    (tmp_path / "other.html").write_text("<h2 id=here></h2>")
    assert not list(SITE["faults"](tmp_path))
    (tmp_path / "page.html").write_text(sound + html)
    (found,) = SITE["faults"](tmp_path)
    assert found.startswith("page.html")
    assert fault in found


def test_a_section_that_names_a_folder_holds_its_pages():
    navigation = yaml.safe_load(SITE["with_folders"]("nav:\n- x:\n  - R: runbooks/\n", ROOT / "docs"))["nav"]
    pages = navigation[0]["x"][0]["R"]
    assert pages == sorted(pages)
    assert "runbooks/RightsizerPlanLate.md" in pages


def test_a_page_outside_the_navigation_is_reported(tmp_path):
    for name in ("in.md", "out.md"):
        (tmp_path / name).touch()
    assert SITE["outside_navigation"]("out.md\nnav:\n- In: in.md\n", tmp_path) == ["out.md"]


@pytest.fixture(scope="module")
def workflow():
    return yaml.safe_load((ROOT / ".github/workflows/docs.yml").read_text())


def test_the_workflow_publishes_what_make_docs_builds(workflow):
    build, deploy = (workflow["jobs"][name]["steps"] for name in ("build", "deploy"))
    at = next(i for i, step in enumerate(build) if step.get("run") == "make docs")
    uploaded = next(step for step in build[at:] if "upload-pages-artifact" in step.get("uses", ""))
    assert uploaded["with"]["path"] == "build/site"
    assert workflow["jobs"]["deploy"]["needs"] == "build"
    assert [step["uses"].partition("@")[0] for step in deploy] == ["actions/deploy-pages"]


def test_only_the_job_that_runs_nothing_of_ours_may_publish(workflow):
    assert workflow["permissions"] == {}
    assert workflow["jobs"]["build"]["permissions"] == {"contents": "read"}
    assert workflow["jobs"]["deploy"]["permissions"] == {"pages": "write", "id-token": "write"}
    assert not [step for step in workflow["jobs"]["deploy"]["steps"] if "run" in step]


def test_the_site_s_address_is_the_package_s():
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    assert f"\nsite_url: {urls['Documentation']}\n" in SETTINGS
    owner, repository = urls["Source"].removeprefix("https://github.com/").split("/")
    assert urls["Documentation"] == f"https://{owner}.github.io/{repository}/"
    assert SOURCE.startswith(f"https://github.com/{owner}/{repository}/")

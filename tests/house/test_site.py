"""The hooks of `make docs`."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from mkdocs.exceptions import PluginError

HOOKS = runpy.run_path(str(Path(__file__).parents[2] / "scripts/site_hooks.py"))
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
    config = SimpleNamespace(
        docs_dir=Path(__file__).parents[2] / "docs", nav=[{"x": ["a.md", {"R": "runbooks/"}]}]
    )
    HOOKS["on_config"](config)
    pages = config.nav[0]["x"][1]["R"]
    assert pages == sorted(pages)
    assert "runbooks/RightsizerPlanLate.md" in pages

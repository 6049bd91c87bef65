"""Hooks of `make docs`: links to files that are no pages, and nothing from another server."""

import re
from pathlib import Path
from posixpath import normpath
from typing import Any

from mkdocs.exceptions import PluginError

REPOSITORY = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=[\"']?(?:https?:)?//[^>]*>", re.IGNORECASE)
LINKED = re.compile(
    r"<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|preconnect|preload|icon))[^>]*\bhref=[\"']?(?:https?:)?//[^>]*>",
    re.IGNORECASE,
)


def on_config(config: Any) -> None:
    """A section of the navigation that names a folder holds the folder's pages."""
    for part in (each for section in config.nav for each in section.values() if isinstance(each, list)):
        for entry in part:
            for title, place in entry.items() if isinstance(entry, dict) else ():
                if place.endswith("/"):
                    entry[title] = sorted(
                        f"{place}{page.name}" for page in Path(config.docs_dir, place).glob("*.md")
                    )


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """The page; its links to files that are no pages lead to the repository, which must have them."""
    folder = Path(page.file.src_uri).parent

    def led(link: re.Match[str]) -> str:
        target = normpath(f"docs/{folder}/{link[1]}")
        if target.startswith("docs/") and not (REPOSITORY / target).is_dir():
            return link[0]
        if not (REPOSITORY / target).exists():
            raise PluginError(f"{page.file.src_uri}: no file {target}")
        return f"]({config.extra['source']}/{target}{link[2] or ''})"

    return LINK.sub(led, markdown)


def on_post_page(output: str, *, page: Any, config: Any) -> str:
    """The page as it is; an error if reading it would ask another server for anything."""
    for found in (*LOADED.findall(output), *LINKED.findall(output)):
        raise PluginError(f"{page.file.src_uri} loads from another server: {found}")
    return output

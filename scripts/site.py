"""Builds the documentation's site with Zensical: site.py [FOLDER], by default build/site.

Zensical runs no hooks. It gets a copy of docs/ in build/pages, where a link to a file that is no page leads
to the repository, and a folder in the navigation is replaced by its pages. The built site must have no dead
link or anchor, no page outside the navigation, and nothing that a browser loads from another server.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from posixpath import normpath
from urllib.parse import unquote

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCE = "https://github.com/rightsizer/rightsizer/blob/main"
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")
FOLDER = re.compile(r"^( *)- ([^:\n]+): (\S+/)\n", re.MULTILINE)
SERVER = re.compile(r"(?:https?:)?//", re.IGNORECASE)
LOADING_TAGS = frozenset({"script", "img", "iframe", "source"})
LOADING_LINKS = frozenset({"stylesheet", "preconnect", "preload", "icon"})


def repository_links(markdown: str, page: str, repository: Path = REPOSITORY) -> str:
    """The Markdown of a page below docs/; its links to files that are no pages lead to the repository."""

    def target_of(link: re.Match[str]) -> str:
        target = normpath(f"docs/{Path(page).parent}/{link[1]}")
        if not (repository / target).exists():
            raise FileNotFoundError(f"{page}: no file {target}")
        if target.startswith("docs/") and not (repository / target).is_dir():
            return link[0]
        return f"]({SOURCE}/{target}{link[2] or ''})"

    return LINK.sub(target_of, markdown)


def with_folders(settings: str, docs: Path) -> str:
    """The settings; each folder in their navigation is a section of its pages."""

    def section(entry: re.Match[str]) -> str:
        indent, title, folder = entry.groups()
        pages = sorted((docs / folder).glob("*.md"))
        return f"{indent}- {title}:\n" + "".join(f"{indent}  - {folder}{page.name}\n" for page in pages)

    return FOLDER.sub(section, settings)


class Page(HTMLParser):
    """A built page: its anchors, its links, and what a browser loads from another server to show it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Note what the tag names, links or loads."""
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        place = found.get("src") or found.get("href") or ""
        shown = tag == "link" and bool({*found.get("rel", "").split()} & LOADING_LINKS)
        if (shown or tag in LOADING_TAGS) and SERVER.match(place):
            self.loaded.append(place)
        elif place and not re.match(r"\w+:|//", place):
            self.links.append(place)


def faults(site: Path) -> Iterator[str]:
    """Dead links, dead anchors and loads from other servers in the built pages."""
    pages = {path: Page(path.read_text()) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name} loads from another server: {place}" for place in page.loaded)
        for link in page.links:
            file, _, anchor = unquote(link).partition("#")
            target = (path.parent / file.partition("?")[0]).resolve() if file else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{name}: dead link {link}"
            elif anchor and target in pages and anchor not in pages[target].anchors:
                yield f"{name}: dead anchor {link}"


def outside_navigation(settings: str, docs: Path) -> list[str]:
    """The pages that the navigation does not name."""
    navigation = settings.partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w/-]+\.md", navigation))
    return sorted({str(page.relative_to(docs)) for page in docs.rglob("*.md")} - named)


def build(site: Path) -> list[str]:
    """Build the site; a line for each fault."""
    work = REPOSITORY / "build/pages"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(REPOSITORY / "docs", work / "docs")
    for page in (work / "docs").rglob("*.md"):
        page.write_text(repository_links(page.read_text(), str(page.relative_to(work / "docs"))))
    settings = with_folders((REPOSITORY / "mkdocs.yml").read_text(), work / "docs")
    (work / "mkdocs.yml").write_text(settings)
    program = Path(sys.executable).with_name("zensical")
    done = subprocess.run([program, "build", "--clean", "--strict"], check=False, cwd=work)
    if done.returncode:
        return ["zensical refuses the pages"]
    shutil.rmtree(site, ignore_errors=True)
    shutil.copytree(work / "build/site", site)
    missing = outside_navigation(settings, work / "docs")
    return [*(f"{page}: not in the navigation" for page in missing), *faults(site)]


def main(arguments: Sequence[str]) -> int:
    """Build the site and print its faults; 1 if there are any."""
    found = build(Path(*arguments).resolve() if arguments else REPOSITORY / "build/site")
    sys.stdout.write("".join(f"{fault}\n" for fault in found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Draw docs/architecture.svg from the import graph: `python scripts/draw_architecture.py [--check]`.

A room is a package; a box in it is a folder, or the modules beside the folders. An arrow is an import. The
picture leaves out arrows that follow from others, and arrows from a folder to another package's folder.
"""

import ast
import functools
import html
import sys
import textwrap
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs/architecture.svg"
PACKAGES = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["root_packages"]
PIXELS, GAP, ROW_GAP, ROOM_GAP = 1200, 14, 26, 44
PADDING, LINE, CHARACTER = 10, 15, 6.5
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:g}">
<title>The packages of rightsizer and their imports</title>
<style>
text {{ font: 11.5px Helvetica, Arial, sans-serif; fill: #334155 }}
.title {{ font-weight: bold; font-size: 13px; fill: #0f172a }}
.room {{ fill: #f1f5f9; stroke: #64748b }}
.folder {{ fill: #fff; stroke: #94a3b8 }}
.modules {{ fill: #f8fafc; stroke: #94a3b8; stroke-dasharray: 4 3 }}
line {{ stroke: #475569; stroke-width: 1.3 }}
.arrow {{ marker-end: url(#head) }}
</style>
<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="9" markerHeight="9"
 markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0L8 4L0 8z" fill="#475569"/></marker>
<rect width="{width}" height="{height:g}" fill="#fff"/>
"""

Edges = Mapping[str, Collection[str]]


@dataclass(frozen=True, kw_only=True)
class Box:
    """A rectangle with a title and text, at a place. Through a gap only an arrow passes."""

    kind: str
    title: str = ""
    text: str = ""
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0

    @property
    def middle(self) -> float:
        """The horizontal middle."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height

    @property
    def lines(self) -> list[str]:
        """The text, wrapped to the width."""
        return textwrap.wrap(self.text, max(1, int((self.width - 2 * PADDING) / CHARACTER)))

    @property
    def least_height(self) -> float:
        """The height of the title and the text."""
        return 2 * PADDING + LINE * (len(self.lines) + bool(self.title)) if self.kind != "gap" else 0.0

    def svg(self) -> str:
        """The rectangle and its text; of a gap the line through it."""
        if self.kind == "gap":
            return _line(self.middle, self.y, self.middle, self.bottom)
        texts = [("title", self.title)] * bool(self.title) + [("text", line) for line in self.lines]
        rectangle = f'<rect class="{self.kind}" rx="6" x="{self.x:g}" y="{self.y:g}" '
        return f'{rectangle}width="{self.width:g}" height="{self.height:g}"/>\n' + "".join(
            f'<text class="{style}" x="{self.x + PADDING:g}" y="{self.y + PADDING + LINE * row - 3:g}">'
            f"{html.escape(line)}</text>\n"
            for row, (style, line) in enumerate(texts, start=1)
        )


@functools.cache
def graph() -> grimp.ImportGraph:
    """Every import of every package."""
    return grimp.build_graph(*PACKAGES, cache_dir=None)


def imports(nodes: Collection[str]) -> dict[str, set[str]]:
    """The imports between packages, folders or modules."""

    def exists(one: str, two: str) -> bool:
        return graph().direct_import_exists(importer=one, imported=two, as_packages=True)

    return {one: {two for two in nodes if one != two and exists(one, two)} for one in sorted(nodes)}


def from_top(edges: Edges) -> dict[str, int]:
    """The row of each node: one below the lowest node that imports it."""

    @functools.cache
    def depth(node: str) -> int:
        return max((depth(other) + 1 for other in edges if node in edges[other]), default=0)

    return {node: depth(node) for node in edges}


def from_bottom(edges: Edges) -> dict[str, int]:
    """The row of each node: one above the highest node that it imports."""
    heights = from_top({node: {other for other in edges if node in edges[other]} for node in edges})
    return {node: max(heights.values()) - height for node, height in heights.items()}


def reduced(edges: Edges) -> list[tuple[str, str]]:
    """The edges that no longer path replaces."""

    @functools.cache
    def below(node: str) -> set[str]:
        return set(edges[node]).union(*map(below, edges[node]))

    implied = {node: set().union(*map(below, edges[node])) for node in edges}
    return [(node, other) for node in edges for other in sorted(set(edges[node]) - implied[node])]


def arranged(
    boxes: Mapping[str, Box], edges: Edges, row_of: Mapping[str, int]
) -> tuple[list[dict[str, Box]], list[tuple[str, str]]]:
    """Rows of boxes, and arrows from row to row: a longer one passes through a gap in each row between."""
    rows = [
        {node: boxes[node] for node in edges if row_of[node] == row}
        for row in range(1 + max(row_of.values()))
    ]
    arrows: list[tuple[str, str]] = []
    for one, two in reduced(edges):
        gaps = [f"{one} {two} {row}" for row in range(row_of[one] + 1, row_of[two])]
        for row, gap in enumerate(gaps, start=row_of[one] + 1):
            rows[row][gap] = Box(kind="gap", width=8)
        arrows += pairwise([one, *gaps, two])
    for index, (upper, row) in enumerate(pairwise(rows), start=1):
        place = {node: (order + 0.5) / len(upper) for order, node in enumerate(upper)}
        parents = {node: [place[one] for one, two in arrows if two == node] or [0.5] for node in row}
        rows[index] = {
            node: row[node] for node in sorted(row, key=lambda node: sum(parents[node]) / len(parents[node]))
        }
    return rows, arrows


def description(package: str) -> str:
    """The first line of a package's docstring."""
    spec = find_spec(package)
    text = Path(spec.origin).read_text() if spec and spec.origin else ""
    return (ast.get_docstring(ast.parse(text)) or "").split("\n")[0].replace("`", "")


def contents(package: str) -> tuple[dict[str, Box], dict[str, set[str]]]:
    """A package's boxes and their imports; modules of one row share a box."""
    edges = imports(graph().find_children(package))
    folders = {child for child in edges if graph().find_children(child)}
    row_of = from_bottom(edges) if folders else dict.fromkeys(edges, 0)
    box_of = {child: child if child in folders else f"modules {row_of[child]}" for child in edges}
    boxes, joined = {}, {name: set[str]() for name in box_of.values()}
    for name in joined:
        modules = ", ".join(child.rpartition(".")[2] for child in edges if box_of[child] == name)
        folder = Box(kind="folder", title=modules, text=description(name)) if name in folders else None
        boxes[name] = folder or Box(kind="modules", text=modules)
    for one, others in edges.items():
        joined[box_of[one]] |= {box_of[two] for two in others} - {box_of[one]}
    return boxes, joined


def draw(
    rows: Sequence[Mapping[str, Box]],
    arrows: Sequence[tuple[str, str]],
    frame: Box,
    *,
    gaps: tuple[float, float],
    fill: Callable[[Box], tuple[float, str]],
) -> tuple[float, str]:
    """The rows of a frame: their lower edge and the drawing. `fill` draws what is in a box."""
    y, placed, inside = frame.y, dict[str, Box](), ""
    for row in rows:
        free = frame.width - gaps[0] * (len(row) - 1) - sum(box.width for box in row.values())
        total = sum(_weight(box) for box in row.values()) or 1.0
        x, filled = frame.x, {}
        for name, box in row.items():
            one = replace(box, x=x, y=y, width=round(box.width + free * _weight(box) / total))
            filled[name] = (replace(one, height=one.least_height), *fill(one))
            x += one.width + gaps[0]
        bottom = max(max(box.bottom, low) for box, low, _ in filled.values())
        placed |= {name: replace(box, height=bottom - y) for name, (box, _, _) in filled.items()}
        inside += "".join(text for _, _, text in filled.values())
        y = bottom + gaps[1]
    lines = "".join(arrow(placed[one], placed[two]) for one, two in arrows)
    return y - gaps[1], "".join(box.svg() for box in placed.values()) + inside + lines


def room(box: Box) -> tuple[float, str]:
    """The lower edge of a package's contents, and their drawing."""
    if box.kind == "gap":
        return 0.0, ""
    boxes, edges = contents(box.title)
    y = box.y + box.least_height
    frame = replace(box, x=box.x + GAP, y=y, width=box.width - 2 * GAP)
    rows, arrows = arranged(boxes, edges, from_bottom(edges))
    low, drawing = draw(rows, arrows, frame, gaps=(GAP, ROW_GAP), fill=lambda box: (box.y, ""))
    return low + GAP, drawing


def arrow(one: Box, two: Box) -> str:
    """A line from the bottom of a box to the top of another, upright where they overlap."""
    low, high = max(one.x, two.x), min(one.x + one.width, two.x + two.width)
    start = end = (low + high) / 2
    if high - low < PADDING / 2:
        start, end = (
            (one.x + one.width * 0.9, two.x + two.width * 0.1)
            if one.x < two.x
            else (one.x + one.width * 0.1, two.x + two.width * 0.9)
        )
    return _line(start, one.bottom, end, two.y, kind="" if two.kind == "gap" else ' class="arrow"')


def _line(x1: float, y1: float, x2: float, y2: float, *, kind: str = "") -> str:
    return f'<line{kind} x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"/>\n'


def _weight(box: Box) -> float:
    """The share of a row's free width that a box takes."""
    return 0.0 if box.kind == "gap" else max(32.0, min(60.0, len(box.text)))


def picture() -> str:
    """The whole drawing."""
    edges = imports(PACKAGES)
    rooms = {name: Box(kind="room", title=name, text=description(name)) for name in edges}
    rows, arrows = arranged(rooms, edges, from_top(edges))
    frame = Box(kind="page", x=GAP, y=GAP, width=PIXELS - 2 * GAP)
    low, drawing = draw(rows, arrows, frame, gaps=(ROOM_GAP, ROOM_GAP), fill=room)
    return HEAD.format(width=PIXELS, height=low + GAP) + drawing + "</svg>\n"


def main(arguments: Sequence[str]) -> int:
    """Write the picture, or with --check only compare; 1 if it is stale."""
    drawn = picture()
    if "--check" not in arguments:
        PICTURE.write_text(drawn)
    elif not PICTURE.exists() or PICTURE.read_text() != drawn:
        sys.stderr.write(f"stale: {PICTURE.relative_to(ROOT)}; run make generate\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Draws docs/explanation/architecture.svg and the table of docs/explanation/architecture.md from the code: its imports, and what each
package says of itself.

PYTHONPATH=.:tests:tests/unit python tests/architecture.py
"""

import ast
import re
from collections.abc import Iterator, Mapping
from html import escape
from itertools import accumulate, pairwise
from pathlib import Path

from shape import imported_names
from test_layers import FILES, FLOORS, LAYERS, LEVEL, ROOT, room_name

PAGE = ROOT / "docs/explanation/architecture.md"
DRAWING = ROOT / "docs/explanation/architecture.svg"
BEGIN, END = "<!-- from the code, by `make docs`: begin -->\n", "<!-- from the code, by `make docs`: end -->\n"
WIDTH, ROW_HEIGHT, BOX_WIDTH, BOX_HEIGHT, GAP = 1000, 78, 132, 38, 16
ROWS = {room: len(LAYERS) - 1 - level for room, level in LEVEL.items()}
COLOURS = {
    "data": "#0f766e",
    "etl": "#0f766e",
    "spark": "#0f766e",
    "tasks": "#b45309",
    "train": "#b45309",
    "strategies": "#b45309",
    "monitor": "#b45309",
    "applications": "#b45309",
    "formats": "#b45309",
    "launch": "#b45309",
    "serving": "#6d28d9",
    "tracking": "#be185d",
    "report": "#be185d",
}
"""Of the boxes, by the first part of a room's name: one for each stage of a pipeline. White text is readable on each."""
OTHER_COLOUR = "#475569"
STYLE = """
  .panel { fill: #f8fafc; stroke: #cbd5e1 }
  .arrow { fill: none; stroke: #64748b; stroke-width: 1.4; stroke-opacity: .55 }
  text { font: 600 13px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; fill: #fff; text-anchor: middle }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #0f172a; stroke: #334155 }
    .arrow { stroke: #94a3b8 }
  }
"""


def room_of_file(file: Path) -> str:
    """`jobs` for `jobs/etl.py`, `data.loader` for `pipelines/data/loader/order.py`."""
    top, *folders = file.relative_to(ROOT).with_suffix("").parts
    return top if top == "jobs" else room_name(".".join(folders).removesuffix(".__init__"))


def imported_rooms() -> Mapping[str, set[str]]:
    """The rooms that each room imports from."""
    rooms: dict[str, set[str]] = {room: set() for room in LEVEL}
    for file in FILES:
        if file != ROOT / "pipelines/__init__.py" and (room := room_of_file(file)) not in FLOORS:
            names = (name.partition(".")[2] for name in imported_names(file) if name.startswith("pipelines."))
            rooms[room] |= {room_name(name) for name in names} - {room}
    return rooms


def arrows(imported: Mapping[str, set[str]]) -> list[tuple[str, str]]:
    """Imports without those that a longer way contains: the transitive reduction."""

    def reachable(room: str) -> set[str]:
        return imported[room].union(*(reachable(other) for other in imported[room]))

    below = {room: reachable(room) for room in imported}
    return sorted(
        (room, other) for room in imported for other in imported[room] if not any(other in below[middle] for middle in imported[room])
    )


def paths(edges: list[tuple[str, str]]) -> list[list[tuple[str, int]]]:
    """For each arrow the (room, row) that it leads through, row by row. Arrows to one room share the places between the rows."""
    return [[(room, ROWS[room]), *((other, row) for row in range(ROWS[room] + 1, ROWS[other] + 1))] for room, other in edges]


def centres(edges: list[tuple[str, str]]) -> dict[tuple[str, int], float]:
    """The middle of each place in its row: of a room's box, and of an arrow between boxes. Each row is ordered by what it is drawn to."""
    neighbours: dict[tuple[str, int], set[tuple[str, int]]] = {(room, row): set() for room, row in ROWS.items()}
    for path in paths(edges):
        for upper, lower in pairwise(path):
            neighbours.setdefault(upper, set()).add(lower)
            neighbours.setdefault(lower, set()).add(upper)
    rows = [sorted(place for place in neighbours if place[1] == row) for row in range(len(LAYERS))]
    across = {place: x for row in rows for place, x in _spread(row)}
    for sweep in range(40):
        for row in rows if sweep % 2 else reversed(rows):
            mean = {place: sum(across[other] for other in neighbours[place]) / max(1, len(neighbours[place])) for place in row}
            row.sort(key=lambda place: (round(mean[place], 3), place))
            across |= _spread(row)
    return across


def _spread(row: list[tuple[str, int]]) -> list[tuple[tuple[str, int], float]]:
    """Places side by side in the middle of the drawing."""
    widths = [BOX_WIDTH + GAP if ROWS[room] == number else 2 * GAP for room, number in row]
    ends = list(accumulate(widths))
    return [(place, (WIDTH - ends[-1]) / 2 + end - width / 2) for place, end, width in zip(row, ends, widths, strict=True)]


def drawing() -> str:
    """An SVG with a box for each room and an arrow for each import, from the importing room down to the imported one."""
    edges = arrows(imported_rooms())
    across = centres(edges)
    height = ROW_HEIGHT * len(LAYERS)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="Rooms and imports of Lockstep">',
        f"<style>{STYLE}</style>",
        f'<rect class="panel" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="14"/>',
    ]
    lines += sorted({_curve(across, *step) for path in paths(edges) for step in pairwise(path)})
    for room, row in ROWS.items():
        x, y = across[room, row], ROW_HEIGHT * (row + 0.5)
        colour = COLOURS.get(room.partition(".")[0], OTHER_COLOUR)
        box = f'x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="9"'
        lines += [f'<rect {box} fill="{colour}"/>', f'<text x="{x:.0f}" y="{y + 4.5:.1f}">{escape(room)}</text>']
    return "\n".join([*lines, "</svg>", ""])


def _curve(across: Mapping[tuple[str, int], float], source: tuple[str, int], target: tuple[str, int]) -> str:
    """From a place to one in the next row, and straight on through that row unless it ends there."""
    start, end = ROW_HEIGHT * (source[1] + 0.5) + BOX_HEIGHT / 2, ROW_HEIGHT * (target[1] + 0.5) - BOX_HEIGHT / 2
    x, to_x, middle = across[source], across[target], (start + end) / 2
    through = "" if ROWS[target[0]] == target[1] else f" V{end + BOX_HEIGHT:.0f}"
    return f'<path class="arrow" d="M{x:.0f} {start:.0f} C{x:.0f} {middle:.0f} {to_x:.0f} {middle:.0f} {to_x:.0f} {end:.0f}{through}"/>'


def first_sentence(file: Path) -> str:
    """The first sentence of a module's docstring."""
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    sentence = re.split(r"(?<=\.)\s|\n\n", docstring, maxsplit=1)[0]
    return " ".join(sentence.split()).removesuffix(":").removesuffix(".") + "."


def package_files(room: str) -> Iterator[tuple[str, Path]]:
    """A room's name and file, and those of the packages in it."""
    folder = ROOT / "pipelines" / room.replace(".", "/")
    if not folder.is_dir():
        yield room, folder.with_suffix(".py")
        return
    yield room, folder / "__init__.py"
    for inner in sorted(folder.glob("*/__init__.py")):
        if (name := f"{room}.{inner.parent.name}") not in LEVEL:
            yield name, inner


def table() -> str:
    """A row for each room, from the top layer down, and for each package inside one."""
    rows = ["| room | what it is for |", "|---|---|", "| [`jobs`](../../jobs) | Entry points, one for each command. |"]
    for room in (room for rooms in reversed(LAYERS) for room in sorted(rooms) if room != "jobs"):
        for name, file in package_files(room):
            target = (file.parent if file.name == "__init__.py" else file).relative_to(ROOT)
            rows.append(f"| {'' if name == room else '↳ '}[`{name}`](../../{target}) | {first_sentence(file)} |")
    return "\n".join([*rows, ""])


def page(present: str) -> str:
    """The page with the present table between its marks."""
    before, after = present.split(BEGIN)
    return before + BEGIN + "\n" + table() + "\n" + END + after.split(END)[1]


def main() -> None:
    PAGE.write_text(page(PAGE.read_text()))
    DRAWING.write_text(drawing())


if __name__ == "__main__":
    main()

"""Draw the pictures of the explanation: ``python docs/pictures.py``.

The layers come from the import-linter contract in ``pyproject.toml`` and the modules' docstrings, so that the
drawing cannot differ from what is enforced. How a workflow runs is drawn from the table below. Colours are
chosen to be legible on a light and on a dark page, since an ``<img>`` does not follow the theme's switch.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "explanation" / "pictures"

FONT = "font-family='system-ui, sans-serif'"
BLUE, TEAL, GREY, WHITE = "#2f6690", "#3a7d6b", "#7d8590", "#ffffff"

WIDTH = 860
GAP = 8
PURPOSES = {
    "what a project touches": ("apps", "testing"),
    "for people": ("admin", "checks", "management", "metrics", "predeploy", "workflows", "reports"),
    "for processes": ("worker", "housekeeping", "dispatchers"),
    "the engine": ("execution", "lifecycle", "migrations"),
    "the rows": ("models", "logs", "tracing"),
    "what the author wrote": ("definition",),
    "shared by all": ("states", "events", "conf", "clock", "serialization", "exceptions"),
}

# Lane, text, what is committed. One line of the drawing each, from top to bottom.
YOURS, ROWS, WORKER = range(3)
LANES = ("your code", "rows in the database", "a worker")
STEPS: list[tuple[int, str, str]] = [
    (YOURS, "start(order)", "T1 begins"),
    (ROWS, "workflow: ready · execution 1: scheduled", "T1 commits"),
    (WORKER, "dispatch: execution 1 is due", "after T1"),
    (WORKER, "prepare: lock, check, claim", "T2 begins"),
    (ROWS, "workflow: performing · execution 1: in progress", "T2 commits"),
    (WORKER, "perform: the step's body", "no transaction and no lock"),
    (WORKER, "decide: success, error, skip() …", "reads and writes no rows"),
    (WORKER, "finalize: lock, check the token, write", "T3 begins"),
    (ROWS, "execution 1: completed · execution 2: scheduled", "T3 commits"),
    (WORKER, "dispatch: execution 2 is due", "after T3"),
]


def box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f"<rect x='{x:g}' y='{y:g}' width='{width:g}' height='{height:g}' rx='5' fill='{colour}'/>"


def text(
    x: float, y: float, words: str, *, size: int = 13, colour: str = WHITE, anchor: str = "start"
) -> str:
    return (
        f"<text x='{x:g}' y='{y:g}' font-size='{size}' {FONT} fill='{colour}' text-anchor='{anchor}'>"
        f"{escape(words)}</text>"
    )


def arrow(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f"<line x1='{x1:g}' y1='{y1:g}' x2='{x2:g}' y2='{y2:g}' stroke='{GREY}' stroke-width='1.6' "
        "marker-end='url(#head)'/>"
    )


def picture(title: str, width: float, height: float, parts: list[str]) -> str:
    head = (
        "<defs><marker id='head' viewBox='0 0 8 8' refX='7' refY='4' markerWidth='7' markerHeight='7' "
        f"orient='auto-start-reverse'><path d='M0 0 L8 4 L0 8 z' fill='{GREY}'/></marker></defs>"
    )
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:g} {height:g}' role='img' "
        f"aria-label='{escape(title)}'>\n<title>{escape(title)}</title>\n{head}\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def layers() -> list[list[str]]:
    """Return the layers that import-linter enforces, from the highest to the lowest."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    return [[name.strip() for name in layer.split(":")] for layer in contract["layers"]]


def about(name: str) -> str:
    """Return the first line of a module's docstring."""
    path = ROOT / "geneva_drive" / name
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    words = ast.get_docstring(ast.parse(source.read_text())) or ""
    return words.split("\n")[0].rstrip(".")


def architecture() -> str:
    """The layers: a module may import from those below it, never from those above."""
    parts: list[str] = []
    y = 10.0
    purpose_of = {name: purpose for purpose, names in PURPOSES.items() for name in names}
    colour_of = {purpose: (BLUE, TEAL)[number % 2] for number, purpose in enumerate(PURPOSES)}
    left, before = 170.0, ""
    for layer in layers():
        width = (WIDTH - left - GAP * (len(layer) - 1)) / len(layer)
        purpose = purpose_of[layer[0]]
        if purpose != before:
            parts.append(text(0, y + 20, purpose, colour=GREY))
            before = purpose
        # A layer of many modules has no room for what each is about.
        described = len(layer) < 3
        height = 40 if described else 30
        for place, name in enumerate(layer):
            x = left + place * (width + GAP)
            parts.append(box(x, y, width, height, colour_of[purpose]))
            parts.append(text(x + 10, y + (17 if described else 20), name))
            if described:
                most = int((width - 20) / 5.6)
                words = about(name)
                words = words if len(words) <= most else words[: most - 1].rsplit(" ", 1)[0] + " …"
                parts.append(text(x + 10, y + 33, words, size=11))
        y += height + GAP
    parts.append(arrow(WIDTH + 14, 14, WIDTH + 14, y - 14))
    parts.append(
        f"<text transform='translate({WIDTH + 28} {y / 2:g}) rotate(90)' font-size='12' {FONT} fill='{GREY}' "
        "text-anchor='middle'>imports go down only</text>"
    )
    return picture("The layers of the package", WIDTH + 40, y + 6, parts)


def way_of_the_data() -> str:
    """One step from start() to the next step."""
    lane_width, left = 310.0, 5.0
    parts = [
        text(left + lane * (lane_width + 20) + lane_width / 2, 18, name, colour=GREY, anchor="middle")
        for lane, name in enumerate(LANES)
    ]
    y, height, pitch = 30.0, 40.0, 58.0
    for number, (lane, words, transaction) in enumerate(STEPS):
        x = left + lane * (lane_width + 20)
        parts.append(box(x, y, lane_width, height, TEAL if lane == ROWS else BLUE))
        parts.append(text(x + lane_width / 2, y + 17, words, size=12, anchor="middle"))
        parts.append(text(x + lane_width / 2, y + 32, transaction, size=11, anchor="middle"))
        if number + 1 < len(STEPS):
            following = STEPS[number + 1][0]
            towards = left + following * (lane_width + 20) + lane_width / 2
            parts.append(arrow(x + lane_width / 2, y + height + 1, towards, y + pitch - 2))
        y += pitch
    return picture("One step, from start() to the next step", 3 * lane_width + 50, y - 10, parts)


PICTURES = {"architecture.svg": architecture, "how-a-workflow-runs.svg": way_of_the_data}


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / name).write_text(draw())
        print(FOLDER.relative_to(ROOT) / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

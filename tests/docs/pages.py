"""The pages, and the code on them.

What a block is, its language and its first line say:

``python``, first line ``# shop/workflows.py``
    a file of the page's project; for ``settings.py``, what is added at its end
``python``
    statements for the page's open shell
``pycon``
    the same with what it prints, which is compared
``sh``
    commands, one a line
``text``
    no code

A block of any other language, and one that cannot be run, has ``<!-- not run: why -->`` on the line above.
``<!-- begins with: … -->`` at the top of a page says what is there before its first block.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ROOT", "Block", "Page", "pages"]

ROOT = Path(__file__).resolve().parent.parent.parent

RUN = {"python", "pycon", "sh"}
NO_CODE = {"text"}

_FENCE = re.compile(r"^(`{3,})(.*)$")
_NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
_BEGINS = re.compile(r"^<!-- begins with: (.+) -->$")
_FILE = re.compile(r"^# ([\w/]+\.py)$")


@dataclass(frozen=True)
class Block:
    """A fenced block. ``line`` is that of its first line of code."""

    language: str
    text: str
    line: int
    not_run: str | None = None

    @property
    def file(self) -> str | None:
        """The file that it is, or None for what is run as it stands."""
        found = _FILE.match(self.text.partition("\n")[0]) if self.language == "python" else None
        return found[1] if found else None

    @property
    def first_code(self) -> str:
        return self.text.partition("\n")[0]


@dataclass
class Page:
    """One file of the documentation."""

    path: Path
    begins_with: str = "the quickstart"
    blocks: list[Block] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @property
    def runs(self) -> list[Block]:
        """What is run of it, in order."""
        return [block for block in self.blocks if block.language in RUN and block.not_run is None]

    @property
    def takes_the_workflow_for_granted(self) -> bool:
        """Whether its commands name the order's workflow, and no code of it declares one."""
        texts = [(block.language, block.text) for block in self.runs]
        named = any(language == "sh" and "shop.OrderWorkflow" in text for language, text in texts)
        return named and not any("class OrderWorkflow" in text for _, text in texts)


def pages() -> list[Page]:
    """Every page: the README and the documentation."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [_read(path) for path in found if "_build" not in path.parts]


def _read(path: Path) -> Page:
    page = Page(path)
    lines = path.read_text().splitlines()
    number = 0
    while number < len(lines):
        line = lines[number]
        if begins := _BEGINS.match(line):
            page.begins_with = begins[1]
        elif fence := _FENCE.match(line):
            end = next(at for at in range(number + 1, len(lines)) if lines[at] == fence[1])
            if not fence[2].startswith("{"):  # a directive of MyST
                why = _NOT_RUN.match(lines[number - 1])
                text = "\n".join(lines[number + 1 : end]) + "\n"
                page.blocks.append(Block(fence[2], text, number + 2, why[1] if why else None))
            number = end
        number += 1
    return page

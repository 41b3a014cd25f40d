"""The reference pages match the code."""

from __future__ import annotations

import ast
import re
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand

import geneva_drive
from geneva_drive import events, exceptions, testing
from geneva_drive.conf import DEFAULTS
from geneva_drive.states import ENDED, MOVES, ONGOING, ExecutionState, Outcome, WorkflowState
from tests.docs.pages import ROOT

REFERENCE = ROOT / "docs" / "reference"
COMMANDS = sorted(name for name, app in get_commands().items() if app == "geneva_drive")


def _page(name: str) -> str:
    return (REFERENCE / f"{name}.md").read_text()


def _rows(text: str) -> dict[str, list[str]]:
    """Return the other cells of each table row whose first cell is one name in code, by that name."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and (name := re.fullmatch(r"`([\w.]+)`", cells[0])):
            assert name[1] not in found, f"{name[1]} is in two rows"
            found[name[1]] = cells[1:]
    return found


def _section(text: str, heading: str) -> str:
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, f"there is no section {heading!r}"
    return rest.partition("\n## ")[0]


def _as_written(value: Any) -> str:
    if isinstance(value, timedelta):
        for unit in ("days", "hours", "minutes", "seconds"):
            count, rest = divmod(value, timedelta(**{unit: 1}))
            if count and not rest:
                return f"{count} {unit if count > 1 else unit.removesuffix('s')}"
        return "0 seconds"
    if isinstance(value, str):
        return f'`"{value}"`'
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else f"`{value}`"


def test_the_page_of_settings_has_every_key_with_its_default() -> None:
    written = {name: cells[0] for name, cells in _rows(_page("settings")).items()}

    assert written == {name: _as_written(value) for name, value in DEFAULTS.items()}


def test_the_page_of_commands_has_every_command_and_no_other() -> None:
    headings = re.findall(r"^## (\w+)$", _page("commands"), re.MULTILINE)

    assert COMMANDS
    assert sorted(headings) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
def test_the_page_of_commands_has_every_option_of_each(name: str) -> None:
    parser = load_command_class("geneva_drive", name).create_parser("manage.py", name)
    djangos = BaseCommand().create_parser("manage.py", name)
    common = {option for action in djangos._actions for option in action.option_strings}
    options = {option for action in parser._actions for option in action.option_strings} - common
    arguments = {action.dest for action in parser._actions if not action.option_strings}

    section = _section(_page("commands"), name)
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    written = {found for cell in first_cells for found in re.findall(r"`(--[\w-]+)", cell)}
    assert written == options
    assert [argument for argument in arguments if f"`{argument.upper()}" not in section] == []


@pytest.mark.parametrize(("module", "heading"), [(geneva_drive, None), (testing, "Testing")])
def test_the_page_of_the_api_has_every_public_name(module: Any, heading: str | None) -> None:
    page = _page("api")
    section = page if heading is None else _section(page, heading)
    # In code, or as the last part of a directive's argument.
    named = set(re.findall(r"`(\w+)`", section))
    named |= {
        path.rpartition(".")[2] for path in re.findall(r"^\.\. [\w:]+:: ([\w.]+)", section, re.MULTILINE)
    }

    assert set(module.__all__) - named == set()


def test_every_public_name_is_loaded_from_the_module_that_type_checkers_see() -> None:
    checked = next(
        node
        for node in ast.parse(Path(geneva_drive.__file__).read_text()).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    homes = {
        alias.name: node.module or ""
        for node in ast.walk(checked)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert sorted(homes) == sorted(geneva_drive.__all__)
    for name, home in homes.items():
        assert getattr(geneva_drive, name) is getattr(import_module(home), name)


def _hierarchy(cls: type[BaseException]) -> dict[str, Any]:
    """Return the subclasses of an error by name, in the order of definition."""
    below = [one for one in cls.__subclasses__() if one.__module__ == "geneva_drive.exceptions"]
    return {one.__name__: _hierarchy(one) for one in below}


def _drawn(text: str) -> dict[str, Any]:
    """Parse a tree drawn with lines, four characters per level."""
    root: dict[str, Any] = {}
    open_levels = [root]
    for line in text.splitlines():
        found = re.match(r"^((?:[│ ] {3})*)[├└]── (\w+)", line.strip("\n"))
        if found:
            depth = len(found[1]) // 4
            del open_levels[depth + 1 :]
            below: dict[str, Any] = {}
            open_levels[depth][found[2]] = below
            open_levels.append(below)
    return root


def _without_margin(text: str) -> str:
    return "\n".join(line.removeprefix("    ") for line in text.splitlines())


def test_the_tree_of_errors_matches_the_classes() -> None:
    classes = _hierarchy(exceptions.GenevaDriveError)

    assert "PayloadTooLargeError" in classes["PayloadError"]
    assert _drawn(_page("errors")) == classes
    assert _drawn(_without_margin(exceptions.__doc__ or "")) == classes


def test_the_page_of_errors_explains_every_error() -> None:
    assert set(_rows(_page("errors"))) == set(exceptions.__all__) - {"GenevaDriveError"}


def test_the_page_of_checks_has_every_check() -> None:
    levels = {"E": "error", "W": "warning", "I": "info"}
    package = Path(geneva_drive.__file__).parent
    found = {
        name
        for file in package.rglob("*.py")
        for name in re.findall(r'id="(geneva_drive\.[EWI]\d{3})"', file.read_text())
    }

    assert len(found) > 10
    assert {name: cells[0] for name, cells in _rows(_page("checks")).items()} == {
        name: levels[name.partition(".")[2][0]] for name in found
    }


def test_the_page_of_events_has_every_event_with_its_arguments() -> None:
    written = {name: set(re.findall(r"`(\w+)`", cells[0])) for name, cells in _rows(_page("events")).items()}

    source = Path(events.__file__).read_text()
    documented = {}
    for name in events.__all__:
        comment = re.search(rf"((?:^#:.*\n)+)^{name} = Signal", source, re.MULTILINE)
        assert comment is not None, f"{name} has no comment"
        arguments = comment[1].replace("#:", "").partition(": ")[0]
        documented[name] = set(re.findall(r"``(\w+)``", arguments)) - {"workflow"}
    assert written == documented


def test_the_page_of_states_has_each_state_with_its_transitions() -> None:
    page = _page("states")

    workflows = _rows(_section(page, "Workflow states"))
    moves = {name: set(re.findall(r"`(\w+)`", cells[1])) for name, cells in workflows.items()}
    assert moves == {str(state): {str(other) for other in others} for state, others in MOVES.items()}
    assert set(_rows(_section(page, "Execution states"))) == set(ExecutionState.values)
    outcomes = _rows(_section(page, "Outcomes"))
    assert set(outcomes) == set(Outcome.values)
    assert {cells[0].strip("`") for cells in outcomes.values()} <= set(ExecutionState.values)
    assert {*ONGOING, *ENDED} == set(WorkflowState)

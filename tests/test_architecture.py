"""What docs/explanation/architecture.md says of the code, read from the source.

Each exception to a rule stands in a table here with its reason. A new writer of states, a new lock or a new
late import fails its test until it is added to the table, and so to the page.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "geneva_drive"
PAGE = ROOT / "docs" / "explanation" / "architecture.md"

LONGEST_FILE = 450
"""Lines. Beyond them a file holds two concepts."""

STATE_WRITERS = {
    "lifecycle.transitions": "the writer of states for everything that goes through the ORM",
    "lifecycle.unit_of_work": "it writes to the database what transitions changed in memory",
    "lifecycle.signals": "a new signal is inserted as pending, in the statement that finds duplicates",
    "lifecycle.scheduling": "a new execution is made as scheduled",
    "lifecycle.starting": "a new workflow is made as ready",
    "execution.fast_path_sql": "the fast path writes what transitions would, in one statement",
    "execution.fast_path": "and the instances at hand are made to show it",
}
"""Modules that write the column ``state`` of a workflow, an execution or a signal."""

LOCK_TAKERS = {
    "lifecycle.locking": "the locks of one workflow, its execution and its signals, always in that order",
    "lifecycle.starting": "a locking read of the run that holds a hero's slot: a snapshot may be older",
    "execution.fast_path_sql": "the fast path locks in the statement that writes",
    "housekeeping.retention": "the clean-up locks a batch, skipping what is locked",
}
"""Modules that lock rows."""

UPWARD_IMPORTS = {
    ("models.verbs", "lifecycle"): "a row's verbs and its save() call the layer that acts on rows",
}
"""Imports from a lower layer to a higher one. Each is made when it is called."""

LATE_IMPORTS = {
    "apps.ready": "an app's modules may be imported when the registry of apps is ready, not before",
    "apps._columns_changed": "the same",
    "dispatchers.celery.__init__": "importing the module registers the task; only projects with Celery have it",
    "models.verbs.lifecycle": "the one import upwards",
    "worker.listening.can_listen": "the module exists only where psycopg is installed",
}
"""Functions of the package that import something when they are called."""

MAY_RECUR = {"__init__", "base"}
"""File names that more than one folder may have."""


@cache
def sources() -> dict[str, ast.Module]:
    """Every module of the package, without ``geneva_drive.`` in front, with its parsed source."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if "migrations" not in parts:
            found[".".join(parts).removesuffix("__init__").removesuffix(".")] = ast.parse(path.read_text())
    return found


READS = {"filter", "exclude", "Q", "get", "list_url", "only_these"}
"""What takes a keyword ``state`` to look for one."""

WRITES = {"change", "update", "create", "bulk_create"}

SQL_WRITE = re.compile(r"\bSET\b.*\bstate\b|INSERT INTO", re.DOTALL)


def writes_state(node: ast.AST) -> bool:
    match node:
        case ast.Assign(targets=targets):
            return any(isinstance(each, ast.Attribute) and each.attr == "state" for each in targets)
        case ast.Call(func=function, keywords=keywords):
            name = getattr(function, "attr", getattr(function, "id", ""))
            # With ``**values`` nobody sees which columns are written, so that counts as well.
            columns = {each.arg for each in keywords}
            return name not in READS and ("state" in columns or (name in WRITES and None in columns))
        case ast.Constant(value=str(text)):
            return bool(SQL_WRITE.search(text))
    return False


def takes_lock(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="select_for_update"):
            return True
        case ast.Constant(value=str(text)):
            return "FOR UPDATE" in text
    return False


def code(tree: ast.Module) -> Iterator[ast.AST]:
    """Walk a module without its docstrings."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                first.value.value = ""
    yield from ast.walk(tree)


# Rows are written below these folders; what stands above them only asks.
ACTING = ("lifecycle", "execution", "worker", "housekeeping", "models", "dispatchers")


def test_states_have_one_writer_and_the_exceptions_that_the_page_names() -> None:
    writers = {
        name
        for name, tree in sources().items()
        if name.split(".")[0] in ACTING and any(writes_state(node) for node in code(tree))
    }
    assert writers == set(STATE_WRITERS)


def test_locks_have_one_taker_and_the_exceptions_that_the_page_names() -> None:
    takers = {name for name, tree in sources().items() if any(takes_lock(node) for node in code(tree))}
    assert takers == set(LOCK_TAKERS)


def test_the_late_imports_are_those_that_the_page_names() -> None:
    late = set()
    for name, tree in sources().items():
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function)
            ):
                late.add(f"{name}.{function.name}")
    assert late == set(LATE_IMPORTS)


def imports(name: str, tree: ast.Module) -> Iterator[str]:
    """Return the modules of the package that a module imports, late and for types alone included."""
    known = sources()
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("geneva_drive"):
            continue
        module = (node.module or "").removeprefix("geneva_drive").removeprefix(".")
        for alias in node.names:
            full = f"{module}.{alias.name}".removeprefix(".")
            imported = full if full in known else module
            if imported not in (name, ""):
                yield imported


def test_no_circle_of_imports_but_through_the_one_upward_import() -> None:
    graph = {
        name: {each for each in imports(name, tree) if (name, each) not in UPWARD_IMPORTS}
        for name, tree in sources().items()
        if name
    }
    # Take away what imports nothing that is left, and what nothing that is left imports.
    while outside := [
        name
        for name, targets in graph.items()
        if not targets or not any(name in others for others in graph.values())
    ]:
        for name in outside:
            del graph[name]
        for targets in graph.values():
            targets.difference_update(outside)
    assert graph == {}, "modules that import each other"


def test_the_upward_imports_are_still_there() -> None:
    for name, target in UPWARD_IMPORTS:
        assert target in set(imports(name, sources()[name]))


def test_a_file_is_one_concept_with_a_name_of_its_own() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in files}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}
    recurring = Counter(path.stem for path in files)
    assert {stem for stem, count in recurring.items() if count > 1} <= MAY_RECUR


@pytest.mark.parametrize(
    "table", [STATE_WRITERS, LOCK_TAKERS, LATE_IMPORTS], ids=["writers of states", "locks", "late imports"]
)
def test_the_page_names_each_exception(table: dict[str, str]) -> None:
    page = PAGE.read_text()
    missing = [name for name in table if f"`{name}`" not in page]
    assert missing == []


def test_the_pictures_are_drawn_from_this_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from docs import pictures

    for name, draw in pictures.PICTURES.items():
        drawn = (pictures.FOLDER / name).read_text()
        assert drawn == draw(), f"{name} is older than the code: run `python docs/pictures.py`"

"""The package and the repository as a whole."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import geneva_drive

ROOT = Path(__file__).resolve().parent.parent

MODULES = sorted(module.name for module in pkgutil.walk_packages(geneva_drive.__path__, "geneva_drive."))

# The modules that projects import from; all others may change without notice.
PUBLIC = [
    "geneva_drive",
    "geneva_drive.conf",
    "geneva_drive.dispatchers",
    "geneva_drive.events",
    "geneva_drive.exceptions",
    "geneva_drive.predeploy",
    "geneva_drive.reports",
    "geneva_drive.states",
    "geneva_drive.testing",
]

# Top-level modules of the extras. Only a missing extra may make a module unusable.
OPTIONAL = {"celery", "django_json_widget", "django_tasks", "opentelemetry", "prometheus_client"}

# Home folders, and the checkout folders of build machines.
MACHINE_PATH = re.compile(r"/(?:root|work|workspace|builds|home/[\w.-]+|Users/[\w.-]+)/")


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in OPTIONAL:
            raise
        pytest.skip(f"{error.name} is not installed")


def _is_ours(thing: object) -> bool:
    return (inspect.isclass(thing) or inspect.isroutine(thing)) and thing.__module__.startswith(
        "geneva_drive"
    )


@pytest.mark.parametrize("name", MODULES)
def test_every_module_can_be_imported_and_has_a_docstring(name: str) -> None:
    module = _module(name)

    source = Path(module.__file__ or "")
    empty = source.name == "__init__.py" and not source.read_text().strip()
    # Django generates migrations.
    assert empty or ".migrations." in name or module.__doc__, f"{name} has no docstring"


@pytest.mark.parametrize("name", ["geneva_drive", *MODULES])
def test_every_exported_name_exists(name: str) -> None:
    module = _module(name)

    assert [one for one in getattr(module, "__all__", []) if not hasattr(module, one)] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_exported_and_documented(name: str) -> None:
    module = _module(name)

    exported = {one: getattr(module, one) for one in module.__all__}
    assert exported
    assert [one for one, thing in exported.items() if _is_ours(thing) and not inspect.getdoc(thing)] == []


def test_importing_the_package_needs_neither_settings_nor_models() -> None:
    program = "import geneva_drive, sys; print('django' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env={}, capture_output=True, text=True, check=False
    )

    assert (done.stdout.strip(), done.stderr) == ("False", "")


def test_no_file_contains_a_path_of_the_authors_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("this is no git checkout, so its files are not known")
    files = [ROOT / name for name in listed.stdout.split("\0") if name]
    assert Path(__file__) in files

    found = [
        f"{file.relative_to(ROOT)}: {line.strip()}"
        for file in files
        if file.is_file()
        for line in file.read_text(errors="ignore").splitlines()
        if MACHINE_PATH.search(line)
    ]

    assert found == []

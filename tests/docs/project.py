"""The Django project of a page, used as its reader would: files, commands, an open shell."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests import warm_processes
from tests.docs.pages import ROOT, Block

__all__ = ["Project"]

SECONDS = 150

ORDER = """
from django.db import models


class Order(models.Model):
    customer = models.CharField(max_length=100)
    email = models.EmailField(blank=True)
    paid = models.BooleanField(default=False)
    tracking = models.CharField(max_length=50, blank=True)
    withdrawn = models.BooleanField(default=False)
"""

WORKFLOW = """
from geneva_drive import Workflow, step


class OrderWorkflow(Workflow):
    hero_model = "shop.Order"

    @step
    def charge(self): ...

    @step
    def ship(self): ...
"""


class _Shell:
    """The process of ``session.py``, which answers each line with one."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        asked, ask = os.pipe()
        answer, answered = os.pipe()
        self._questions = os.fdopen(ask, "w")
        self._answers = os.fdopen(answer)
        self._process = warm_processes.start(
            [sys.executable, str(ROOT / "tests" / "docs" / "session.py")],
            cwd=folder,
            env=environment,
            stdin=asked,
            stdout=answered,
            stderr=sys.__stderr__.fileno() if sys.__stderr__ else subprocess.DEVNULL,
        )
        os.close(asked)
        os.close(answered)

    def ask(self, line: str) -> str:
        self._questions.write(line + "\n")
        self._questions.flush()
        return self._answers.readline()

    def close(self) -> None:
        self._questions.close()
        self._process.wait(SECONDS)
        self._answers.close()


class Project:
    """A folder with, sooner or later, a ``manage.py``.

    Parameters
    ----------
    database
        Django's description of the database that the project uses.
    """

    def __init__(self, folder: Path, database: dict[str, Any]) -> None:
        self.folder = folder
        self._database = database
        self._shell: _Shell | None = None
        self.settings = folder / "mysite" / "settings.py"

    # -- what may be there before a page's first block

    def begin_with_a_project(self) -> None:
        """An app with an order, of a project that has never heard of geneva_drive."""
        self._python("-m", "django", "startproject", "mysite", ".")
        self._python("manage.py", "startapp", "shop")
        self.write("shop/models.py", ORDER)
        self.write("mysite/settings.py", 'INSTALLED_APPS += ["shop"]\n')
        self._python("manage.py", "makemigrations", "shop")
        self._python("manage.py", "migrate")

    def begin_with_the_quickstart(self) -> None:
        """The same, with geneva_drive, and a relation from the order to its workflows."""
        self._python("-m", "django", "startproject", "mysite", ".")
        self._python("manage.py", "startapp", "shop")
        relation = "\n    workflows = geneva_drive.WorkflowRelation()\n"
        self.write("shop/models.py", "import geneva_drive\n" + ORDER + relation)
        self.write("mysite/settings.py", 'INSTALLED_APPS += ["geneva_drive", "shop"]\n')
        self._python("manage.py", "makemigrations", "shop")
        self._python("manage.py", "migrate")

    def use_the_database(self) -> None:
        """Let a copied project use its own database: the last word in its settings counts."""
        self.write("mysite/settings.py", self._database_settings())

    def have_the_workflow(self) -> None:
        """The class that a page's commands name and its code does not declare: commands refuse what nobody has."""
        self.write("shop/workflows.py", WORKFLOW)

    # -- what blocks ask for

    def run(self, block: Block, page: str) -> None:
        """Do what a block of a page says. Raises AssertionError with what went wrong."""
        if block.file is not None:
            self.write(block.file, block.text)
        elif block.language == "sh":
            for command in block.text.replace("\\\n", " ").splitlines():
                words = shlex.split(command)
                assert words[:1] == ["python"], f"{command!r} cannot be run here: it is no call of python"
                self._python(*words[1:])
        else:
            self._in_shell({"language": block.language, "text": block.text, "line": block.line, "page": page})

    def write(self, name: str, text: str) -> None:
        """Write a file; settings are added to what is there. As readers would, restart the shell."""
        self.close_shell()
        path = self.folder / name
        before = path.read_text() if path == self.settings else ""
        path.write_text(before + text)

    def check(self) -> None:
        self._python("manage.py", "check")

    def close_shell(self) -> None:
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()

    # -- processes

    def _python(self, *words: str) -> None:
        done = warm_processes.run(
            [sys.executable, *words],
            cwd=self.folder,
            env=self._environment(),
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
        )
        assert done.returncode == 0, (
            f"python {shlex.join(words)} ended with {done.returncode}:\n{done.stdout}"
        )
        if "startproject" in words:
            self.write("mysite/settings.py", self._database_settings())

    def _database_settings(self) -> str:
        if self._database["ENGINE"].endswith("sqlite3"):
            # The file that startproject chose. Nobody pulls the plug: without a sync the suite is faster.
            options = {"timeout": 20, "init_command": "PRAGMA synchronous = OFF"}
            return f"DATABASES['default']['OPTIONS'] = {options!r}\n"
        return f"DATABASES = {{'default': {self._database!r}}}\n"

    def _in_shell(self, request: dict[str, Any]) -> None:
        if self._shell is None:
            environment = {**self._environment(), "DJANGO_SETTINGS_MODULE": "mysite.settings"}
            self._shell = _Shell(self.folder, environment)
        answer = self._shell.ask(json.dumps(request))
        assert answer, "the shell broke off"
        problem = json.loads(answer)["problem"]
        assert not problem, problem

    def _environment(self) -> dict[str, str]:
        """A reader's: nothing of this suite's own, and the package installed."""
        own = ("DJANGO_", "GENEVA_", "PYTEST_")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        return {**environment, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}

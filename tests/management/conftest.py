"""Calling a command as a script would, and looking at what it says."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Answer:
    """What a command wrote, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def command() -> Callable[..., Answer]:
    """Call a command with command-line arguments; nothing is asked, since there is no terminal."""

    def call(name: str, *arguments: object) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        status = 0
        try:
            call_command(name, *map(str, arguments), stdout=out, stderr=err)
        except CommandError as error:
            # As manage.py does it.
            status = error.returncode
            err.write(str(error))
        except SystemExit as exit_:
            status = int(exit_.code or 0)
        return Answer(status, out.getvalue(), err.getvalue())

    return call

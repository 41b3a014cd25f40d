"""Processes that a test starts work on that test's databases."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from django.contrib.auth.models import Group

PROGRAM = """
import django
django.setup()
from django.contrib.auth.models import Group
Group.objects.filter(name="written by the test").update(name="seen by the child")
"""


@pytest.mark.django_db(transaction=True)
def test_a_child_process_sees_what_the_test_wrote(child_environment: Callable[[], dict[str, str]]) -> None:
    group = Group.objects.create(name="written by the test")

    subprocess.run([sys.executable, "-W", "error", "-c", PROGRAM], env=child_environment(), check=True)

    group.refresh_from_db()
    assert group.name == "seen by the child"

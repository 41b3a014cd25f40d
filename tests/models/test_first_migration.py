"""Fresh tables, for each type of hero key and of primary key."""

from __future__ import annotations

import json
import os
import sys
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connections, models, transaction
from django.utils import timezone

from geneva_drive.models import Workflow, columns
from tests import warm_processes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OTHER = "other"


def migrate(target: str | None) -> None:
    arguments = ["geneva_drive"] if target is None else ["geneva_drive", target]
    call_command("migrate", *arguments, database=OTHER, verbosity=0)
    columns.reset(OTHER)


@pytest.mark.django_db(transaction=True, databases=["default", OTHER])
def test_each_kind_of_hero_key_can_be_migrated_from_nothing(settings: Any) -> None:
    ours = settings.GENEVA_DRIVE
    try:
        for kind in columns.KINDS:
            migrate("zero")
            settings.GENEVA_DRIVE = {**ours, "HERO_KEY_TYPE": kind}
            assert columns.real_hero_column(connections[OTHER]) is None
            migrate(None)

            assert columns.hero_key_kind(OTHER) == kind
            key = {"bigint": 2**63 - 1, "uuid": uuid.uuid4(), "string": "😀" * columns.STRING_LENGTH}[kind]
            _row(key)
            with pytest.raises(IntegrityError), transaction.atomic(using=OTHER):
                _row(key)
    finally:
        settings.GENEVA_DRIVE = ours
        migrate("zero")
        migrate(None)


def _row(key: Any) -> None:
    now = timezone.now()
    workflow = Workflow(type="😀" * 150, created_at=now, updated_at=now)
    workflow.hero_type_id, workflow.hero_id = None, key
    models.Model.save(workflow, force_insert=True, using=OTHER)


PROGRAM = """
import sys, uuid
import django
django.setup()
from django.core.management import call_command
from django.db import IntegrityError, models, transaction
from django.utils import timezone
from geneva_drive.models import StepExecution, Workflow

call_command("migrate", "geneva_drive", "zero", database="other", verbosity=0)
call_command("migrate", "geneva_drive", database="other", verbosity=0)
call_command("check", databases=["other"], fail_level="ERROR")

now = timezone.now()
def make(model, **values):
    row = model(**values)
    models.Model.save(row, force_insert=True, using="other")
    row.refresh_from_db()
    return row
workflow = make(Workflow, type="a.B", created_at=now, updated_at=now)
assert isinstance(workflow.pk, uuid.UUID), workflow.pk
execution = dict(workflow_id=workflow.pk, step_name="one", queue="q", scheduled_for=now, created_at=now)
assert make(StepExecution, **execution).active_workflow == workflow.pk
try:
    with transaction.atomic(using="other"):
        make(StepExecution, **execution)
except IntegrityError:
    print("refused")
call_command("migrate", "geneva_drive", "zero", database="other", verbosity=0)
"""


@pytest.mark.django_db(transaction=True, databases=["default", OTHER])
def test_the_tables_own_keys_can_be_uuids(
    child_environment: Callable[[], dict[str, str]], settings: Any
) -> None:
    try:
        ran = warm_processes.run(
            [sys.executable, "-c", PROGRAM],
            env={
                **child_environment(),
                "GENEVA_TEST_SETTINGS": json.dumps({**settings.GENEVA_DRIVE, "KEY_TYPE": "uuid"}),
            },
        )
        assert ran.stdout.endswith("refused\n"), ran.stderr
    finally:
        migrate("zero")
        migrate(None)


HOST_SETTINGS = """
SECRET_KEY = "only for tests"
INSTALLED_APPS = [
    "django.contrib.contenttypes", "django.contrib.auth", "django.contrib.sessions", "geneva_drive", "host"
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "host.sqlite3"}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
"""
HOST_MODELS = """
import uuid
from django.db import models

class Key(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    class Meta:
        abstract = True

class One(Key): pass
class Two(Key): pass
class Three(Key): pass
"""


@pytest.mark.only_on("sqlite", reason="a host project of its own, with a file of its own")
def test_a_new_project_is_advised_before_its_first_migrate_from_its_declared_models(tmp_path: Path) -> None:
    (tmp_path / "host_settings.py").write_text(HOST_SETTINGS)
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "__init__.py").touch()
    (tmp_path / "host" / "models.py").write_text(HOST_MODELS)

    def manage(*arguments: str) -> str:
        ran = warm_processes.run(
            [sys.executable, "-m", "django", *arguments],
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "host_settings",
                "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}",
            },
            cwd=tmp_path,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout + ran.stderr

    manage("makemigrations", "host")
    assert "geneva_drive.I008" in manage("check", "--database", "default")
    # The library's tables come first: none of the project's exists when the hero key is decided.
    manage("migrate", "geneva_drive")
    described = json.loads(manage("geneva_hero_key", "--json"))
    assert described["column"]["kind"] == "uuid"
    assert described["counts"] == {"uuid": 3, "string": 0, "integer": 1}
    assert "geneva_drive" not in manage("check", "--database", "default")
    manage("migrate")
    assert json.loads(manage("geneva_hero_key", "--json"))["counts"] == described["counts"]

"""Identifying text, primary keys, generated columns and migrations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, connection, models, transaction
from django.utils import timezone

from geneva_drive.models import StepExecution, Workflow, fields
from geneva_drive.models.fields import keys
from geneva_drive.states import ACTIVE, ExecutionState
from tests import warm_processes

LOOK_ALIKES = ["Abc", "ABC", "Abc ", "äbc", "abc", "abc\t"]


def row(**values: Any) -> Workflow:
    now = timezone.now()
    workflow = Workflow(type="shop.Order", created_at=now, updated_at=now)
    for name, value in values.items():
        setattr(workflow, name, value)
    models.Model.save(workflow, force_insert=True)
    return workflow


@pytest.mark.django_db
class TestIdentifyingText:
    def test_distinguishes_case_and_trailing_spaces(self) -> None:
        for text in LOOK_ALIKES:
            row(type=text)

        for text in LOOK_ALIKES:
            assert list(Workflow._base_manager.filter(type=text).values_list("type", flat=True)) == [text]
            assert Workflow._base_manager.filter(type__in=[text]).count() == 1
            assert Workflow._base_manager.exclude(type=text).count() == len(LOOK_ALIKES) - 1

    def test_every_identifying_column_has_the_collation(self, database: str) -> None:
        """The generated key inherits the collation."""
        if connection.vendor != "mysql":
            assert fields.IdentifierField(max_length=5).db_parameters(connection)["collation"] is None
            return
        wanted = {"mysql": "utf8mb4_0900_bin", "mariadb": "utf8mb4_nopad_bin"}[database]
        for model in (Workflow, StepExecution):
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT column_name, collation_name FROM information_schema.columns "
                    "WHERE table_schema = DATABASE() AND table_name = %s",
                    [model._meta.db_table],
                )
                collations = dict(cursor.fetchall())
            for field in model._meta.local_fields:
                kind = getattr(field, "output_field", field)
                if isinstance(kind, fields.IdentifierField):
                    assert collations[field.column] == wanted, field.name


@pytest.mark.django_db
class TestActiveWorkflow:
    def execution(self, workflow: Workflow, state: str) -> StepExecution:
        now = timezone.now()
        execution = StepExecution(
            workflow=workflow,
            step_name="one",
            state=state,
            queue="default",
            scheduled_for=now,
            created_at=now,
        )
        execution.save(force_insert=True)
        execution.refresh_from_db()
        return execution

    def test_is_the_workflow_while_the_execution_is_active(self) -> None:
        for state in ExecutionState:
            workflow = row()
            active = self.execution(workflow, state).active_workflow
            assert active == (workflow.pk if state in ACTIVE else None)

    @pytest.mark.parametrize("first", ACTIVE)
    @pytest.mark.parametrize("second", ACTIVE)
    def test_the_database_refuses_a_second_active_execution(self, first: str, second: str) -> None:
        workflow = row()
        for state in ExecutionState:
            if state not in ACTIVE:
                self.execution(workflow, state)
        self.execution(workflow, first)

        with pytest.raises(IntegrityError), transaction.atomic():
            self.execution(workflow, second)


class TestKeys:
    def test_a_uuid7_contains_its_time(self) -> None:
        before = time.time_ns() // 1_000_000
        for make in (fields.uuid7, keys._own_uuid7):
            value = make()
            assert value.version == 7
            assert value.variant == uuid.RFC_4122
            assert before <= value.int >> 80 <= time.time_ns() // 1_000_000 + 1

    def test_uuid7s_of_a_process_are_in_order_and_differ(self) -> None:
        made: list[list[uuid.UUID]] = [[] for _ in range(4)]

        def make(into: list[uuid.UUID]) -> None:
            into.extend(keys._own_uuid7() for _ in range(5000))

        threads = [threading.Thread(target=make, args=(into,)) for into in made]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert all(into == sorted(into) for into in made)
        assert len({value for into in made for value in into}) == 20_000

    def test_the_order_is_kept_if_the_clock_is_set_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = keys._own_uuid7()
        monkeypatch.setattr(time, "time_ns", lambda: 0)

        assert first < keys._own_uuid7() < keys._own_uuid7()

    def test_a_full_counter_advances_the_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = keys._own_uuid7()
        monkeypatch.setattr(keys, "_counter", (1 << 42) - 1)
        monkeypatch.setattr(time, "time_ns", lambda: 0)

        second = keys._own_uuid7()

        assert second > first
        assert (second.version, second.variant) == (7, uuid.RFC_4122)

    @pytest.mark.parametrize(
        ("key_type", "field"), [("bigint", models.BigAutoField), ("uuid", models.UUIDField)]
    )
    def test_the_setting_decides_the_key_type_of_the_tables(
        self, settings: Any, key_type: str, field: type[models.Field[Any, Any]]
    ) -> None:
        settings.GENEVA_DRIVE = {"KEY_TYPE": key_type}

        assert type(fields.primary_key()) is field
        assert fields.primary_key().primary_key

    def test_another_key_type_is_refused(self, settings: Any) -> None:
        settings.GENEVA_DRIVE = {"KEY_TYPE": "string"}
        with pytest.raises(ImproperlyConfigured, match=r"KEY_TYPE.*'bigint' or 'uuid'"):
            fields.primary_key()


HOST_SETTINGS = """
from tests.settings import *
DEFAULT_AUTO_FIELD = {auto_field!r}
"""


def manage(
    tmp_path: Any, *arguments: str, auto_field: str = "BigAutoField", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a host project with these settings."""
    (tmp_path / "host_settings.py").write_text(
        HOST_SETTINGS.format(auto_field=f"django.db.models.{auto_field}")
    )
    return warm_processes.run(
        [sys.executable, "-m", "django", *arguments],
        env={
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "host_settings",
            "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.getcwd()}",
            **environment,
        },
    )


no_database = pytest.mark.only_on("sqlite", reason="what is tested does not depend on the database")


@no_database
@pytest.mark.parametrize(
    ("auto_field", "ours"),
    [
        ("AutoField", {}),
        ("BigAutoField", {"HERO_KEY_TYPE": "bigint"}),
        ("AutoField", {"KEY_TYPE": "uuid", "HERO_KEY_TYPE": "string"}),
        ("BigAutoField", {"KEY_TYPE": "uuid", "HERO_KEY_TYPE": "uuid"}),
    ],
    ids=str,
)
def test_no_project_setting_causes_a_new_migration(
    tmp_path: Any, auto_field: str, ours: dict[str, str]
) -> None:
    made = manage(
        tmp_path,
        "makemigrations",
        "--check",
        "geneva_drive",
        auto_field=auto_field,
        GENEVA_TEST_SETTINGS=json.dumps(ours),
    )

    assert (made.returncode, made.stdout) == (0, "No changes detected in app 'geneva_drive'\n"), made.stderr


@no_database
def test_checks_and_makemigrations_need_no_live_server(tmp_path: Any) -> None:
    environment = {
        "GENEVA_TEST_DATABASE": "postgresql",
        "GENEVA_TEST_POSTGRESQL_URL": "postgresql://nobody@127.0.0.1:1/",
        "GENEVA_TEST_NAMES": "{}",
    }
    for command in (["check"], ["makemigrations", "--check", "geneva_drive"]):
        ran = manage(tmp_path, *command, **environment)
        assert ran.returncode == 0, ran.stderr

"""The quick way to empty the tables leaves what Django's own way leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import connection
from django.db.models.signals import post_migrate

from geneva_drive import Workflow
from tests import flushing

pytestmark = pytest.mark.django_db(transaction=True)


def nothing() -> None:
    pass


def write() -> None:
    """Rows in many tables, with references, and one beside those that stay."""
    user = User.objects.create(username="Ada")
    kind = ContentType.objects.create(app_label="testapp", model="gone")
    permission = Permission.objects.create(content_type=kind, codename="see", name="See")
    user.user_permissions.add(permission)
    user.groups.add(Group.objects.create(name="all"))


def change() -> None:
    Permission.objects.filter(codename="view_group").update(name="Another")


def delete() -> None:
    ContentType.objects.filter(model="group").delete()


def flush() -> None:
    """As Django does after a transactional test."""
    call_command("flush", verbosity=0, interactive=False, reset_sequences=False, allow_cascade=False)


@pytest.mark.parametrize("act", [nothing, write, change, delete])
def test_rows_are_those_after_a_flush(act: Callable[[], None]) -> None:
    flush()
    kinds = set(ContentType.objects.values_list("app_label", "model"))
    permissions = set(Permission.objects.values_list("content_type__model", "codename", "name"))
    act()
    ContentType.objects.get_for_model(Workflow)

    flush()

    assert set(flushing._with_rows("default")) == {"django_content_type", "auth_permission"}
    assert set(ContentType.objects.values_list("app_label", "model")) == kinds
    assert set(Permission.objects.values_list("content_type__model", "codename", "name")) == permissions
    found = ContentType.objects.get_for_model(Workflow)
    assert ContentType.objects.get(pk=found.pk) == found


def test_others_hear_of_it_and_django_does_so_again() -> None:
    heard: list[Any] = []

    def hear(sender: Any, **kwargs: Any) -> None:
        heard.append(sender.label)

    before = len(post_migrate.receivers)
    post_migrate.connect(hear)
    try:
        flush()
    finally:
        post_migrate.disconnect(hear)

    assert "geneva_drive" in heard
    assert len(post_migrate.receivers) == before


def test_it_is_quick_for_that_it_writes_nothing_again() -> None:
    flush()
    Group.objects.create(name="one")
    statements: list[str] = []

    def note(execute: Any, sql: str, *rest: Any) -> Any:
        statements.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(note):
        flush()

    assert [sql for sql in statements if sql.startswith("INSERT")] == []
    deleted = [sql for sql in statements if sql.startswith("DELETE")]
    assert len(deleted) == 1
    assert "auth_group" in deleted[0]

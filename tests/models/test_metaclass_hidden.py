"""Workflow classes are hidden from migrations, content types and permissions, but not from the admin."""

from __future__ import annotations

from io import StringIO

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.management import create_contenttypes
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db.migrations.state import ProjectState

from geneva_drive import Workflow, step
from tests.definition.support import Base
from tests.testapp.workflows import FiveSteps

pytestmark = pytest.mark.usefixtures("classes_forgotten")


def test_migrations_do_not_contain_workflow_classes() -> None:
    class Made(Base):
        @step
        def ship(self) -> None: ...

    assert ("testapp", "made") not in ProjectState.from_apps(apps).models
    assert ("testapp", "order") in ProjectState.from_apps(apps).models
    assert Made not in apps.get_models()
    assert Made in apps.get_models(include_auto_created=True)


@pytest.mark.django_db(databases="__all__")
def test_a_class_has_nothing_to_migrate() -> None:
    class Made(Base):
        pass

    out = StringIO()
    call_command("makemigrations", "testapp", "geneva_drive", dry_run=True, verbosity=3, stdout=out)

    # The test app has no migrations, so the command sees all of its models as new.
    assert "name='Order'" in out.getvalue()
    for cls in (Made, Base, FiveSteps):
        assert cls.__name__ not in out.getvalue()


@pytest.mark.django_db
def test_a_class_has_neither_content_type_nor_permissions() -> None:
    class Made(Base):
        pass

    config = apps.get_app_config("testapp")
    create_contenttypes(config, verbosity=0)
    create_permissions(config, verbosity=0)

    types = set(ContentType.objects.filter(app_label="testapp").values_list("model", flat=True))
    assert "order" in types
    assert not types & {"made", "base", "fivesteps", "heroless"}
    assert not Permission.objects.filter(codename__contains="made").exists()
    assert ContentType.objects.get_for_model(Made).model_class() is Workflow


def test_a_class_can_be_registered_with_the_admin() -> None:
    site = admin.AdminSite()

    site.register(FiveSteps)

    assert site.is_registered(FiveSteps)

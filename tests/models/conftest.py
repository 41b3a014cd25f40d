"""The hero key column in each of its types, heroes of every type of key, and classes for single tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.apps import apps
from django.contrib.contenttypes.models import ContentType
from django.db import DEFAULT_DB_ALIAS, connection
from django.test import modify_settings

from geneva_drive.models import columns
from geneva_drive.models.hero_key_conversion import convert
from tests.definition.support import registry_left_alone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django import DjangoDbBlocker


@pytest.fixture(scope="module")
def heroes_installed(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Install ``tests.columnsapp`` and create its tables for the tests of one module."""
    with modify_settings(INSTALLED_APPS={"append": ["tests.columnsapp"]}), django_db_blocker.unblock():
        apps.clear_cache()  # relations that other models have cached
        models = list(apps.get_app_config("columnsapp").get_models())
        with connection.schema_editor() as editor:
            for model in models:
                editor.create_model(model)
        # Created here, because the cache would keep those that a test rolled back.
        ContentType.objects.clear_cache()
        ContentType.objects.get_for_models(*models)
        yield
        with connection.schema_editor() as editor:
            for model in reversed(models):
                editor.delete_model(model)
        ContentType.objects.filter(app_label="columnsapp").delete()
        ContentType.objects.clear_cache()
    apps.clear_cache()


@pytest.fixture(scope="module", params=columns.KINDS)
def kind(
    request: pytest.FixtureRequest, heroes_installed: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """Convert the hero key column to each type in turn, and back at the end."""
    wanted: str = request.param
    with django_db_blocker.unblock():
        original = columns.hero_key_kind(DEFAULT_DB_ALIAS)
        if wanted != original:
            convert(DEFAULT_DB_ALIAS, wanted)
    yield wanted
    with django_db_blocker.unblock():
        if wanted != original:
            convert(DEFAULT_DB_ALIAS, original)


@pytest.fixture
def classes_forgotten() -> Iterator[None]:
    """Unregister the workflow classes that the test declares."""
    with registry_left_alone():
        yield

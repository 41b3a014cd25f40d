"""The shop on a database of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.fresh_databases import fresh_database, url


@pytest.fixture
def shop(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path: Path
) -> Iterator[dict[str, str]]:
    """The environment for the shop's processes, with an empty database of the selected kind."""
    with django_db_blocker.unblock(), fresh_database("shop", tmp_path) as described:
        environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
        # Some seconds make no difference to what is tested, and much to who waits for it.
        yield {**environment, "SHOP_DATABASE_URL": url(described), "SHOP_DAY_SECONDS": "0.5"}

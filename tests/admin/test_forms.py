"""The heroes that the page to start a workflow offers."""

from __future__ import annotations

import pytest
from django.test import Client

from geneva_drive.definition.registry import registry
from tests.admin.conftest import url
from tests.testapp.workflows import FiveSteps

pytestmark = pytest.mark.django_db


def test_offers_the_heroes_that_some_class_takes(
    admin_client_: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offered() -> set[str]:
        form = admin_client_.get(url("geneva_drive_start")).context["form"]
        rows = form.fields["hero_model"].queryset
        return {f"{each.app_label}.{each.model}" for each in rows}

    assert {"testapp.order", "auth.user", "auth.group"} <= offered()
    inner = ("admin.", "contenttypes.", "sessions.", "geneva_drive.", "auth.permission")
    assert not [each for each in offered() if each.startswith(inner)]
    monkeypatch.setattr(type(registry), "all", lambda _self: [FiveSteps])
    assert offered() == {"testapp.order"}

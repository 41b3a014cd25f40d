"""Users with exactly the permissions that a test names, and their clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

if TYPE_CHECKING:
    from collections.abc import Callable


def url(name: str, *arguments: Any) -> str:
    return reverse(f"admin:{name}", args=arguments)


@pytest.fixture
def client_with() -> Callable[..., Client]:
    """Make a staff user with these permissions (codenames), logged in; CSRF is checked as in production."""

    def make(*codenames: str, csrf: bool = False) -> Client:
        user = User.objects.create_user(f"user{User.objects.count()}", is_staff=True)
        for codename in codenames:
            user.user_permissions.add(
                Permission.objects.get(content_type__app_label="geneva_drive", codename=codename)
            )
        client = Client(enforce_csrf_checks=csrf)
        client.force_login(user)
        return client

    return make


@pytest.fixture
def admin_client_() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client

"""Settings of the benchmark of the admin's pages."""

from __future__ import annotations

from benchmarks.settings import *  # noqa: F403 - the usual way to extend a settings module
from benchmarks.settings import INSTALLED_APPS as _APPS
from tests.settings import MIDDLEWARE, PASSWORD_HASHERS, ROOT_URLCONF, TEMPLATES

__all__ = ["MIDDLEWARE", "PASSWORD_HASHERS", "ROOT_URLCONF", "TEMPLATES"]

INSTALLED_APPS = [
    *_APPS,
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.admin",
]
ALLOWED_HOSTS = ["*"]
STATIC_URL = "static/"

"""Settings of the benchmark of the admin's pages."""

from __future__ import annotations

from benchmarks.settings import *  # noqa: F403 - Django's own way of one settings module on another
from benchmarks.settings import INSTALLED_APPS as _APPS

INSTALLED_APPS = [
    *_APPS,
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.admin",
]
ROOT_URLCONF = "tests.urls"
ALLOWED_HOSTS = ["*"]
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

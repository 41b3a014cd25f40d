"""Settings of the shop.

By default, the shop uses a SQLite file in this folder. To use another database, set the environment variable
SHOP_DATABASE_URL to ``postgresql://user:password@host:port/name``, ``mysql://…``, ``mariadb://…`` or
``sqlite:///file`` (an absolute path has four slashes).
"""

from __future__ import annotations

import os
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from example_project.database import from_url

HERE = Path(__file__).resolve().parent

SECRET_KEY = "only for the demo"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "example_project.urls"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "geneva_drive",
    "example_project.shop",
]
if find_spec("django_json_widget"):  # from the extra "admin": shows JSON as trees
    INSTALLED_APPS += ["django_json_widget"]

DATABASES = {"default": from_url(os.environ.get("SHOP_DATABASE_URL", f"sqlite:///{HERE / 'shop.sqlite3'}"))}

# Shared with the bank and the carrier, who sign their webhook requests with it.
SHOP_WEBHOOK_SECRET = os.environ.get("SHOP_WEBHOOK_SECRET", "only for the demo, too")

# Show what the steps log, and what the worker logs about them.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"short": {"format": "{asctime} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "short"}},
    "loggers": {"geneva_drive": {"handlers": ["console"], "level": "INFO"}},
}

# How soon the steps of a killed worker are recovered. The demo uses less than the default of 30 seconds.
GENEVA_DRIVE = {"LEASE": timedelta(seconds=10)}

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
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

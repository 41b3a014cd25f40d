"""The settings of the test suite. What varies comes from the environment, so that one suite runs everywhere.

=============================  =======================================================================
GENEVA_TEST_DATABASE           ``sqlite`` (default), ``postgresql``, ``mysql`` or ``mariadb``
GENEVA_TEST_<DATABASE>_URL     address of that server: ``scheme://user:password@host:port/``
GENEVA_TEST_NAME               stem of the test databases' names; default: one of its own for each run
GENEVA_TEST_NAMES              JSON, alias to name: existing databases, for processes that a test starts
GENEVA_TEST_ISOLATION          isolation level on MySQL and MariaDB; default: Django's
GENEVA_TEST_PREPARED           ``1``: on PostgreSQL, parameters bound by the server, statements prepared
GENEVA_TEST_USE_TZ             ``1`` (default) or ``0``
GENEVA_TEST_SETTINGS           JSON: the dict ``GENEVA_DRIVE``
=============================  =======================================================================

Others are read by the suite itself:

=============================  =======================================================================
GENEVA_TEST_ALL                ``1``: ``make test`` runs the whole matrix, as ``make test-all`` does
GENEVA_TEST_PARTS              of ``plain,database,processes``, the parts to run (``tests/parts.py``)
GENEVA_TEST_ROUNDS             how often tests repeat what has to go well every time: by default 20 or 30
                               workflows, by hand thousands
GENEVA_TEST_COLD               ``1``: no process is forked from one that has imported Django already
                               (``tests/warm_processes.py``)
GENEVA_TEST_SECOND_ENVIRONMENT ``1``: tests marked ``once`` are skipped
GENEVA_TEST_REPORT             the file in which ``tests.report`` notes what a run did
=============================  =======================================================================
"""

from __future__ import annotations

import json
import os
from importlib.util import find_spec

from tests.servers.databases import database_settings, run_directory

SECRET_KEY = "only for tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "tests.urls"
USE_TZ = os.environ.get("GENEVA_TEST_USE_TZ", "1") == "1"
TIME_ZONE = "Europe/Amsterdam"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

DATABASES = database_settings(os.environ)

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.admin",
    "geneva_drive",
    "tests.testapp",
]

# JSON in the admin: optional for projects, so the suite runs with and without it.
if find_spec("django_json_widget"):
    INSTALLED_APPS += ["django_json_widget"]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "tests.csp.strict_content_security_policy",
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

STATIC_URL = "static/"
MEDIA_ROOT = str(run_directory(os.environ) / "media")
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

GENEVA_DRIVE = json.loads(os.environ.get("GENEVA_TEST_SETTINGS", "{}"))

"""Settings of the benchmarks. The database is the one in ``GENEVA_BENCH_URL``."""

from __future__ import annotations

import json
import os
from urllib.parse import urlsplit

_url = urlsplit(os.environ.get("GENEVA_BENCH_URL", "postgresql://postgres@127.0.0.1:5432/geneva_bench"))
_ENGINES = {"postgresql": "django.db.backends.postgresql", "mysql": "django.db.backends.mysql"}

SECRET_KEY = "only for benchmarks"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": _ENGINES[_url.scheme],
        "NAME": _url.path.strip("/"),
        "USER": _url.username or "",
        "PASSWORD": _url.password or "",
        "HOST": _url.hostname or "",
        "PORT": str(_url.port or ""),
        "OPTIONS": json.loads(os.environ.get("GENEVA_BENCH_OPTIONS", "{}")),
    }
}
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "geneva_drive", "benchmarks.app"]
GENEVA_DRIVE = json.loads(os.environ.get("GENEVA_BENCH_SETTINGS", "{}"))

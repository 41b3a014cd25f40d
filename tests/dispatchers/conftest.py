"""Fixtures: a dispatcher that remembers what it was told, brokers, and real processes at the other end."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from django.db import connection
from pytest_django import Settings

from geneva_drive.execution import heartbeat
from tests.acceptance.fixtures import launch, room
from tests.dispatchers.processes import CeleryProject, Launcher
from tests.dispatchers.recording import Recording
from tests.servers.brokers import BROKERS, find_broker
from tests.servers.processes import CannotStart, PrivateServer

__all__ = ["launch", "room"]


@pytest.fixture(autouse=True)
def _no_heartbeat_stays() -> Iterator[None]:
    """What a test began in this process does not beat into the next one's tables."""
    yield
    heartbeat.stop_all()


@pytest.fixture
def recording(settings: Settings) -> type[Recording]:
    """The dispatcher of this test; it notes what it is told and carries nothing."""
    settings.GENEVA_DRIVE = {"DISPATCHER": "tests.dispatchers.recording.Recording"}
    Recording.reset()
    return Recording


@pytest.fixture
def launcher_class() -> type[Launcher]:
    """Starts processes with the settings of these tests."""
    return Launcher


@pytest.fixture
def tasks_table(transactional_db: None, settings: Settings) -> Iterator[None]:
    """The table of ``django-tasks-db``, for this test only: no other test knows of it."""
    settings.INSTALLED_APPS = [*settings.INSTALLED_APPS, "django_tasks_db"]
    settings.TASKS = {
        "default": {"BACKEND": "django_tasks_db.DatabaseBackend", "QUEUES": ["default", "deadly"]}
    }
    model = import_module("django_tasks_db.models").DBTaskResult
    with connection.schema_editor() as editor:
        editor.create_model(model)
    yield
    with connection.schema_editor() as editor:
        editor.delete_model(model)


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A Redis that these tests may use."""
    yield from _broker("redis")


@pytest.fixture(scope="session")
def rabbitmq_url() -> Iterator[str]:
    """A RabbitMQ that these tests may use."""
    yield from _broker("rabbitmq")


def _broker(name: str) -> Iterator[str]:
    try:
        broker = find_broker(name, os.environ)
    except CannotStart as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name}: {error}")
        pytest.skip(f"{name}: {error}")
    yield broker.url
    if broker.private is not None:
        broker.private.stop()


@pytest.fixture
def private_redis() -> Iterator[PrivateServer]:
    """A Redis that this test may kill."""
    yield from _private("redis")


@pytest.fixture
def private_rabbitmq() -> Iterator[PrivateServer]:
    """A RabbitMQ that this test may stop."""
    yield from _private("rabbitmq")


def _private(name: str) -> Iterator[PrivateServer]:
    try:
        server = BROKERS[name](None)
    except CannotStart as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name}: {error}")
        pytest.skip(f"{name}: {error}")
    yield server
    server.stop()


@pytest.fixture
def celery(
    launch: Launcher, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., CeleryProject]]:
    """Makes this process and those that it launches a project that uses Celery on a broker."""
    made: list[CeleryProject] = []

    def make(url: str, *, transport: dict[str, Any] | None = None, **options: Any) -> CeleryProject:
        # A name that no other run on this broker has.
        queue = f"geneva-{uuid.uuid4().hex[:12]}"
        conf = {
            "broker_url": url,
            "task_default_queue": queue,
            "broker_transport_options": transport or {},
            "broker_connection_timeout": 2,
        }
        monkeypatch.setenv("GENEVA_TEST_CELERY", json.dumps(conf))
        project = CeleryProject(launch, queue, conf, options)
        project.use_here(settings)
        made.append(project)
        return project

    yield make
    launch.close()
    for project in made:
        project.remove_queues()

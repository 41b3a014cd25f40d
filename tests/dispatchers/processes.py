"""The processes at the other end of a dispatcher, as a test sees them."""

from __future__ import annotations

import json
import os
import sys
import uuid
from typing import Any

from pytest_django import Settings

from tests.acceptance.processes import Child
from tests.acceptance.processes import Launcher as _Launcher
from tests.dispatchers.settings import dispatcher

__all__ = ["CeleryProject", "Launcher"]

PATH = "geneva_drive.dispatchers.Celery"

LEASE = 2
"""Seconds: so long after a kill something is recovered."""


class Launcher(_Launcher):
    """Starts processes with the settings of these tests."""

    def process(
        self,
        *command: str,
        settings: dict[str, Any] | None = None,
        environment: dict[str, str] | None = None,
    ) -> Child:
        """Start a process; durations in ``settings`` are seconds."""
        variables = {
            **self._environment,
            **(environment or {}),
            "DJANGO_SETTINGS_MODULE": "tests.dispatchers.settings",
            "GENEVA_TEST_SETTINGS": json.dumps(
                {
                    **json.loads(os.environ.get("GENEVA_TEST_SETTINGS", "{}")),
                    "LEASE": LEASE,
                    **(settings or {}),
                }
            ),
        }
        child = Child(
            [sys.executable, *command], variables, self._folder / f"child-{len(self._children)}.log"
        )
        self._children.append(child)
        return child


class CeleryProject:
    """A project that uses Celery; what it starts uses the same broker and the same queue."""

    def __init__(self, launcher: Launcher, queue: str, conf: dict[str, Any], options: dict[str, Any]) -> None:
        self.queue = queue
        self._launcher = launcher
        self._conf = conf
        self._options = dict(options)

    def use_here(self, settings: Settings) -> None:
        """Make the test's own process send to it."""
        from celery import Celery

        # An app of its own: pools, once closed, stay so.
        self._app = Celery("geneva_tests", set_as_current=True)
        self._app.set_default()
        self._app.conf.update(self._conf)
        settings.GENEVA_DRIVE = {"DISPATCHER": dispatcher(PATH, self._options)}

    def map_queue(self, queue: str) -> None:
        """Let one of our queues be carried by this project's second one."""
        self._options["queues"] = {queue: f"{self.queue}-2"}

    def worker(self, *arguments: str, **settings: Any) -> Child:
        """Start a Celery worker with a pool of forked children."""
        return self._launcher.process(
            "-m", "celery", "-A", "tests.dispatchers.celery_app", "worker",
            "--pool", "prefork", "--loglevel", "INFO", "--without-gossip", "--without-mingle",
            "-n", f"{self.queue}-{uuid.uuid4().hex[:6]}@%h", "-Q", f"{self.queue},{self.queue}-2",
            *(arguments or ("--concurrency", "2")),
            settings={"DISPATCHER": [PATH, self._options], **settings},
            environment={"GENEVA_TEST_CELERY": json.dumps(self._conf)},
        )  # fmt: skip

    def feeder(self, *arguments: str, **settings: Any) -> Child:
        """Start a feeder."""
        return self._launcher.process(
            "-m", "django", "geneva_worker", "--feed-only", "--poll-interval", "0.2", *arguments,
            settings={"DISPATCHER": [PATH, self._options], **settings},
            environment={"GENEVA_TEST_CELERY": json.dumps(self._conf)},
        )  # fmt: skip

    def remove_queues(self) -> None:
        """Leave nothing on a broker that is not ours alone."""
        try:
            with self._app.connection_for_write() as connection:
                channel = connection.default_channel
                for queue in (self.queue, f"{self.queue}-2"):
                    channel.queue_delete(queue)
                    channel.exchange_delete(queue)
                if connection.transport.driver_type == "redis":
                    # What the transport notes of queues that are gone.
                    client = channel.client
                    for key in [*client.scan_iter(f"*{self.queue}*", count=1000)]:
                        client.delete(key)
        except Exception as error:  # noqa: BLE001 - a broker that the test has killed
            print(f"queues not removed: {error}")
        self._app.close()

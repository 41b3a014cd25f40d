"""Celery: messages with an id, on the project's own broker."""

from __future__ import annotations

from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from django.core import checks

from geneva_drive.conf import settings
from geneva_drive.dispatchers.base import Dispatcher
from geneva_drive.dispatchers.running import message_id
from geneva_drive.exceptions import DispatcherError

_MIDDLE, _HIGHEST = 4, 9
"""Priorities of messages go from 0 to 9; ours are centred upon the middle."""


class Celery(Dispatcher):
    """Each execution that is due soon is a message with its id; longer waits stay in the database.

    A message that is delivered twice, late, or after its workflow has moved on changes nothing, so that
    visibility timeouts and restarts of the broker are harmless. What is due later than ``lookahead`` is sent
    when its time comes near, by ``geneva_worker --feed-only`` or ``geneva_housekeeping``, one of which has
    to run.

    Parameters
    ----------
    lookahead
        How long before its time a message may be sent. Longer than the pause between two passes of the
        feeder, and much shorter than the broker's visibility or consumer timeout. Zero: only when due.
    acks_late
        Acknowledge a message when its step has ended, so that a worker that dies before it began loses
        nothing; what it began is recovered from the database. False for steps that run longer than
        RabbitMQ's consumer timeout (half an hour, unless changed).
    priorities
        Send our priorities with the messages. RabbitMQ's queues must be declared with ``x-max-priority``.
    publishing
        Celery's ``retry_policy`` for sending. By default one more try at once, so that a request does not
        wait for a broker that is gone; what could not be sent is sent by the feeder.
    task_options
        More options of the task, such as ``time_limit`` or ``rate_limit``.
    """

    supports_delays = True
    supports_queues = True

    def __init__(
        self,
        *,
        lookahead: timedelta | None = timedelta(minutes=2),
        acks_late: bool = True,
        priorities: bool = False,
        publishing: dict[str, Any] | None = None,
        task_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(lookahead=lookahead, **options)
        if find_spec("celery") is None:
            raise DispatcherError("Celery is not installed: pip install 'geneva_drive[celery]'.")
        self.supports_priorities = priorities
        self.publishing = {"max_retries": 1, "interval_start": 0, "interval_step": 0, **(publishing or {})}
        # Imported here only: the package is not everybody's. The app makes the dispatcher while Django is set
        # up, so that a worker knows the task.
        from geneva_drive.dispatchers import celery_entry

        # With a child of the pool dies what it did not acknowledge: another one looks at the row.
        defaults = {"acks_late": acks_late, "reject_on_worker_lost": acks_late}
        self.task = celery_entry.task({**defaults, **(task_options or {})})

    def lookahead(self) -> timedelta | None:
        """Two minutes, or what the option says; nothing ahead of its time where tasks are eager."""
        return timedelta(0) if self.task.app.conf.task_always_eager else super().lookahead()

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Send one message; the id of Celery's task is the job's."""
        route: dict[str, Any] = {}
        queue = self.queue_for(options["queue"])
        if queue != settings.DEFAULT_QUEUE:
            # The default queue is the project's: Celery's own default, or what task_routes says.
            route["queue"] = queue
        if options["delay"]:
            # From this host's clock: the worker's compares with the moment that comes out.
            route["countdown"] = options["delay"]
        if self.supports_priorities:
            route["priority"] = self._priority(options["priority"])
        result = self.task.apply_async(
            (message_id(execution_id), options["using"]),
            serializer="json",
            ignore_result=True,
            retry=True,
            retry_policy=self.publishing,
            **route,
        )
        return str(result.id)

    def _priority(self, priority: int) -> int:
        place = max(0, min(_HIGHEST, _MIDDLE + priority))
        with self.task.app.connection_for_write() as connection:
            # Redis serves 0 first, everything that speaks AMQP 9.
            return place if connection.transport.driver_type == "redis" else _HIGHEST - place

    def check(self) -> list[checks.CheckMessage]:
        """Eager tasks, and a lookahead near to the broker's patience."""
        found: list[checks.CheckMessage] = []
        app = self.task.app
        conf = app.conf
        if app.main == "default" and not app.set_as_current:
            # What Celery makes up where nobody has made an app.
            found.append(
                checks.Error(
                    "This process has no Celery app: messages would go to Celery's default broker, and no "
                    "worker of the project would see them.",
                    hint="Import the app in the project's __init__.py, as Celery's guide for Django says.",
                    id="geneva_drive.E075",
                )
            )
        if conf.task_always_eager:
            found.append(
                checks.Warning(
                    "Celery's task_always_eager is on: steps run in the process that commits them, and waits "
                    "are not kept.",
                    hint="For tests use 'geneva_drive.dispatchers.Immediate' or geneva_drive.testing.",
                    id="geneva_drive.W073",
                )
            )
        visible = (conf.broker_transport_options or {}).get("visibility_timeout")
        if self._lookahead is None or (visible is not None and self._lookahead.total_seconds() > visible / 2):
            found.append(
                checks.Warning(
                    "The Celery dispatcher's lookahead is longer than half of the broker's visibility timeout: "
                    "waiting messages are delivered more than once. They change nothing, but they cost.",
                    hint="Leave the option 'lookahead' at two minutes, or raise visibility_timeout.",
                    id="geneva_drive.W074",
                )
            )
        return found

    def health(self) -> list[str]:
        """Whether the broker answers."""
        try:
            with self.task.app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
        except Exception as error:  # noqa: BLE001 - every broker has errors of its own
            return [f"Celery's broker is out of reach: {error}"]
        return []

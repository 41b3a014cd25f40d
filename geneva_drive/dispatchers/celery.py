"""The dispatcher for Celery, on the project's own broker."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from django.core import checks

from geneva_drive.conf import settings
from geneva_drive.dispatchers.base import Dispatcher
from geneva_drive.dispatchers.running import message_id
from geneva_drive.exceptions import DispatcherError

_MIDDLE, _HIGHEST = 4, 9
"""Messages have priorities from 0 to 9; our 0 becomes the middle."""


class Celery(Dispatcher):
    """Send one message with its id for each execution that is due soon; longer waits stay in the database.

    A message that is delivered twice, late, or after its workflow has moved on changes nothing, so that
    visibility timeouts and restarts of the broker are harmless. Executions beyond the ``lookahead`` are sent
    when their time comes near, by ``geneva_worker --feed-only`` or ``geneva_housekeeping``: run one of them.

    Parameters
    ----------
    lookahead
        How long before its time a message may be sent. Longer than the pause between two passes of the
        feeder, and much shorter than the broker's visibility or consumer timeout. Zero: not before it is due.
    acks_late
        Acknowledge a message when its step has ended, so that nothing is lost when a worker dies before it
        starts the step; a started step is recovered from the database. False for steps that run longer than
        RabbitMQ's consumer timeout (half an hour, unless changed).
    priorities
        Send our priorities with the messages. RabbitMQ's queues must be declared with ``x-max-priority``.
    publishing
        Celery's ``retry_policy`` for sending. By default one immediate retry, so that a request does not wait
        for an unavailable broker; the feeder sends later what could not be sent.
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
        # Not at the top, since Celery is optional. The app makes the dispatcher while Django is set up, so that
        # a Celery worker knows the task.
        from geneva_drive.dispatchers import celery_entry

        # When a child of the pool is killed, another one gets the message and looks at the row.
        defaults = {"acks_late": acks_late, "reject_on_worker_lost": acks_late}
        self.task = celery_entry.task({**defaults, **(task_options or {})})

    def lookahead(self) -> timedelta | None:
        """Return the option ``lookahead``; zero where tasks are eager."""
        return timedelta(0) if self.task.app.conf.task_always_eager else super().lookahead()

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        """Send one message; return the id of Celery's task."""
        route: dict[str, Any] = {}
        queue = self.queue_for(options["queue"])
        if queue != settings.DEFAULT_QUEUE:
            # The default queue is Celery's own default, or what the project's task_routes say.
            route["queue"] = queue
        if options["delay"]:
            # Celery turns it into a moment by this host's clock, not by the database's.
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
        number = max(0, min(_HIGHEST, _MIDDLE + priority))
        with self.task.app.connection_for_write() as connection:
            # Redis serves 0 first, AMQP brokers 9.
            return number if connection.transport.driver_type == "redis" else _HIGHEST - number

    def check(self) -> list[checks.CheckMessage]:
        """Report a missing app, eager tasks, and a lookahead too long for the broker's visibility timeout."""
        return list(self._problems())

    def _problems(self) -> Iterator[checks.CheckMessage]:
        app, conf = self.task.app, self.task.app.conf
        if app.main == "default" and not app.set_as_current:
            # Celery's fallback where the project has made no app.
            yield checks.Error(
                "This process has no Celery app: messages would go to Celery's default broker, and no worker of "
                "the project would see them.",
                hint="Import the app in the project's __init__.py, as Celery's guide for Django says.",
                id="geneva_drive.E075",
            )
        if conf.task_always_eager:
            yield checks.Warning(
                "Celery's task_always_eager is on: steps run in the process that commits them, and waits are "
                "ignored.",
                hint="For tests use 'geneva_drive.dispatchers.Immediate' or geneva_drive.testing.",
                id="geneva_drive.W073",
            )
        visible = (conf.broker_transport_options or {}).get("visibility_timeout")
        if self._lookahead is None or (visible is not None and self._lookahead.total_seconds() > visible / 2):
            yield checks.Warning(
                "The Celery dispatcher's lookahead is longer than half of the broker's visibility timeout: "
                "waiting messages are delivered more than once, which is harmless but costs traffic.",
                hint="Leave the option 'lookahead' at two minutes, or raise visibility_timeout.",
                id="geneva_drive.W074",
            )

    def health(self) -> list[str]:
        """Report a broker that does not answer."""
        try:
            with self.task.app.connection_for_write() as connection:
                connection.ensure_connection(max_retries=1, interval_start=0, timeout=5)
        except Exception as error:  # noqa: BLE001 - every broker has errors of its own
            return [f"Celery's broker is unavailable: {error}"]
        return []

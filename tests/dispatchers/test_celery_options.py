"""The Celery dispatcher without a worker: what it sends, and what it says about its configuration."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from queue import Empty
from typing import Any

import pytest
from celery import Celery as CeleryApp
from django.core.checks.registry import registry
from pytest_django import Settings

from geneva_drive import Workflow, clock, step
from geneva_drive.checks import check_dispatcher
from geneva_drive.dispatchers import Celery
from geneva_drive.dispatchers.running import message_id
from geneva_drive.exceptions import DispatcherError
from geneva_drive.lifecycle import dispatch
from tests.testapp.workflows import Heroless

PATH = "geneva_drive.dispatchers.Celery"

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def app() -> Iterator[CeleryApp]:
    """An app whose broker lies in this process's memory."""
    app = CeleryApp("geneva_tests", broker="memory://", set_as_current=True)
    app.set_default()
    app.conf.task_default_queue = "project"
    yield app
    with app.connection_for_write() as connection:
        for queue in ("project", "mail", "celery-mail"):
            connection.default_channel.queue_delete(queue)
    app.close()


@pytest.fixture
def use(app: CeleryApp, settings: Settings) -> Callable[..., Celery]:
    """Makes Celery the dispatcher, with options."""

    def use(**options: Any) -> Celery:
        settings.GENEVA_DRIVE = {"DISPATCHER": (PATH, options)}
        made = dispatch.configured_dispatcher()
        assert isinstance(made, Celery)
        return made

    return use


def _next(app: CeleryApp, queue: str) -> Any:
    with app.connection_for_read() as connection, connection.SimpleQueue(queue) as messages:
        message = messages.get(block=False)
        message.ack()
        return message


def _ids() -> set[str | None]:
    return {each.id for each in check_dispatcher()}


def test_the_default_queue_is_the_projects_and_others_keep_their_names(
    app: CeleryApp, use: Callable[..., Celery]
) -> None:
    use()
    first, second = Heroless.start(), Heroless.start(job_options={"queue": "mail"})

    for workflow, queue in ((first, "project"), (second, "mail")):
        message = _next(app, queue)
        arguments, keywords, _ = message.payload
        assert (arguments, keywords) == ([message_id(workflow.executions.get().pk), "default"], {})
        assert message.headers["id"] == workflow.executions.get().job_id


def test_queues_can_be_mapped(app: CeleryApp, use: Callable[..., Celery]) -> None:
    use(queues={"mail": "celery-mail"})
    Heroless.start(job_options={"queue": "mail"})
    assert _next(app, "celery-mail")


def test_executions_due_soon_have_a_countdown_and_later_ones_are_not_sent(
    app: CeleryApp, use: Callable[..., Celery]
) -> None:
    use()
    Heroless.start(at=clock.now() + timedelta(minutes=3))
    Heroless.start(at=clock.now() + timedelta(minutes=1))

    assert _next(app, "project").headers["eta"]
    with pytest.raises(Empty), app.connection_for_read() as connection:
        connection.SimpleQueue("project").get(block=False)


@pytest.mark.parametrize(("given", "sent"), [(0, 5), (-1, 6), (-100, 9), (100, 0)])
def test_priorities_are_sent_if_enabled(
    app: CeleryApp, use: Callable[..., Celery], given: int, sent: int
) -> None:
    use(priorities=True)
    Heroless.start(job_options={"priority": given})
    # In memory, as with AMQP, the higher goes first.
    assert _next(app, "project").properties["priority"] == sent


def test_the_task_has_the_options_of_the_settings(use: Callable[..., Celery]) -> None:
    assert (use().task.acks_late, use().task.reject_on_worker_lost) == (True, True)
    early = use(acks_late=False, task_options={"time_limit": 60})
    assert (early.task.acks_late, early.task.reject_on_worker_lost, early.task.time_limit) == (
        False,
        False,
        60,
    )


def test_eager_tasks_run_without_recursion_and_do_not_run_waits_early(
    app: CeleryApp, use: Callable[..., Celery], settings: Settings
) -> None:
    depths: list[int] = []

    class Eager(Workflow):
        may_proceed_without_hero = True

        class Meta:
            app_label = "testapp"

        @step
        def one(self) -> None:
            depths.append(_depth())

        @step
        def two(self) -> None:
            depths.append(_depth())

        @step(wait=timedelta(seconds=30))
        def three(self) -> None:
            depths.append(_depth())

    use()
    app.conf.task_always_eager = True
    settings.GENEVA_DRIVE = {**settings.GENEVA_DRIVE, "INLINE_CONTINUATION": False}
    workflow = Eager.start()

    assert len(depths) == 2
    assert depths[0] == depths[1]
    waiting = workflow.executions.get(step_name="three")
    assert (waiting.state, waiting.dispatched_at) == ("scheduled", None)
    assert "geneva_drive.W073" in _ids()


def _depth() -> int:
    import inspect

    return len(inspect.stack(0))


def test_the_check_is_one_of_the_systems() -> None:
    assert check_dispatcher in registry.get_checks()


def test_a_lookahead_that_the_broker_does_not_wait_for_is_reported(
    app: CeleryApp, use: Callable[..., Celery]
) -> None:
    use()
    assert not _ids() & {"geneva_drive.W073", "geneva_drive.W074", "geneva_drive.E075"}
    app.conf.broker_transport_options = {"visibility_timeout": 60}
    assert "geneva_drive.W074" in _ids()
    use(lookahead=timedelta(seconds=10))
    assert "geneva_drive.W074" not in _ids()
    use(lookahead=None)
    assert "geneva_drive.W074" in _ids()


def test_a_process_without_the_projects_app_is_reported(use: Callable[..., Celery]) -> None:
    nobodys = CeleryApp("default", set_as_current=False)
    nobodys.set_default()
    use()
    current = CeleryApp("geneva_tests", set_as_current=True)
    assert "geneva_drive.E075" not in _ids()
    nobodys.set_current()
    try:
        assert "geneva_drive.E075" in _ids()
    finally:
        current.set_current()


def test_health_reports_an_unavailable_broker(app: CeleryApp, use: Callable[..., Celery]) -> None:
    assert use().health() == []
    other = CeleryApp("geneva_tests", broker="redis://127.0.0.1:1/0", set_as_current=True)
    try:
        (problem,) = use(lookahead=timedelta(0)).health()
        assert "broker is unavailable" in problem
    finally:
        other.close()
        app.set_current()


def test_without_celery_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setattr("geneva_drive.dispatchers.celery.find_spec", lambda name: None)
    with pytest.raises(DispatcherError, match=r"pip install 'geneva_drive\[celery\]'"):
        Celery()
    settings.GENEVA_DRIVE = {"DISPATCHER": PATH}
    assert any(
        "geneva_drive[celery]" in each.msg for each in check_dispatcher() if each.id == "geneva_drive.E070"
    )


def test_an_unknown_option_is_named(settings: Settings) -> None:
    settings.GENEVA_DRIVE = {"DISPATCHER": (PATH, {"look_ahead": timedelta(0)})}
    with pytest.raises(DispatcherError, match="look_ahead"):
        dispatch.configured_dispatcher()


def test_a_message_is_json(app: CeleryApp, use: Callable[..., Celery]) -> None:
    app.conf.task_serializer = "pickle"
    use()
    Heroless.start()

    message = _next(app, "project")

    assert message.content_type == "application/json"
    body = message.body
    assert json.loads(
        base64.b64decode(body) if isinstance(body, bytes) and not body.startswith(b"[") else body
    )

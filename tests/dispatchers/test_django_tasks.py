"""Django Tasks, with the database backend and its own worker."""

from __future__ import annotations

import signal
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils.module_loading import import_string
from pytest_django import Settings

from geneva_drive import Workflow, clock, step
from geneva_drive.checks import check_dispatcher
from geneva_drive.dispatchers import DjangoTasks
from geneva_drive.dispatchers.django_tasks_entry import tasks_module
from geneva_drive.dispatchers.running import message_id
from geneva_drive.exceptions import DispatcherError
from geneva_drive.models import Process, StepExecution
from tests.acceptance.processes import Child, until
from tests.acceptance.room import Room
from tests.acceptance.workshop.workflows import Chain, Deadly
from tests.dispatchers.processes import Launcher
from tests.testapp.workflows import Heroless

PATH = "geneva_drive.dispatchers.DjangoTasks"


@pytest.fixture
def tasks(tasks_table: None, settings: Settings) -> Any:
    """The model of the backend's table; the dispatcher is in use."""
    settings.GENEVA_DRIVE = {"DISPATCHER": PATH}
    return import_string("django_tasks_db.models.DBTaskResult").objects


def _worker(launch: Launcher, *arguments: str, **settings: Any) -> Child:
    return launch.process(
        "-m", "django", "db_worker", "--queue-name", "*", "--interval", "0.1", "--no-startup-delay", "-v", "2",
        *arguments,
        settings={"DISPATCHER": PATH, **settings},
    )  # fmt: skip


def _finished(*workflows: Workflow) -> bool:
    keys = [each.pk for each in workflows]
    finished: int = Workflow.objects.filter(pk__in=keys, state="finished").count()
    return finished == len(keys)


@pytest.mark.parametrize("inline_continuation", [True, False])
def test_workflows_run_to_their_end(
    tasks: Any, launch: Launcher, room: Room, inline_continuation: bool
) -> None:
    workflows = [Chain.start() for _ in range(3)]
    workflows.append(Chain.start(at=clock.now() + timedelta(seconds=2)))

    workers = [_worker(launch, INLINE_CONTINUATION=inline_continuation) for _ in range(2)]
    until(lambda: _finished(*workflows), "everything is done", child=workers[0])

    assert Counter((words[0], words[1]) for words in room.notes()) == {
        (name, str(each.pk)): 1 for each in workflows for name in ("one", "two", "three", "four", "five")
    }
    assert {each.process.kind for each in StepExecution.objects.all()} == {"django_tasks"}  # type: ignore[union-attr]
    until(lambda: tasks.finished().count() == (4 if inline_continuation else 20), "the tasks have ended")
    assert tasks.failed().count() == 0
    assert set(map(str, tasks.values_list("id", flat=True))) == set(
        StepExecution.objects.filter(job_id__isnull=False).values_list("job_id", flat=True)
    )
    for worker in workers:
        worker.has_said("Starting worker")
        worker.signal(signal.SIGTERM)
        worker.finish()
    assert not Process.objects.exists(), "they have told their end"


def test_a_worker_that_is_killed_in_a_step_loses_nothing(tasks: Any, launch: Launcher, room: Room) -> None:
    room.allow("death")
    workflow = Deadly.start()
    first = _worker(launch)
    until(lambda: room.notes("die"), "it dies", child=None)
    first.wait()
    room.forbid("death")

    second = _worker(launch)
    # A feeder does the housekeeping.
    launch.process("-m", "django", "geneva_worker", "--feed-only", settings={"DISPATCHER": PATH})
    until(lambda: _finished(workflow), "it is done", child=second)

    attempts = list(StepExecution.objects.filter(step_name="die").order_by("pk"))
    assert [each.outcome for each in attempts] == ["recovered", "success"]
    assert len(room.notes("die")) == 2
    assert len(room.notes("after")) == 1


def test_the_task_is_written_with_the_row_and_rolls_back_with_it(tasks: Any) -> None:
    with transaction.atomic():
        workflow = Heroless.start()
        row = workflow.executions.get()
        (task,) = tasks.all()
        assert str(task.id) == row.job_id
        assert row.dispatched_at is not None
        assert task.args_kwargs == {"args": [message_id(row.pk), "default"], "kwargs": {}}
        assert task.task_path == "geneva_drive.dispatchers.django_tasks_entry.run_execution"
        transaction.set_rollback(True)

    assert not tasks.exists()
    assert not StepExecution.objects.exists()


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_rows_on_another_database_than_the_tasks_are_dispatched_after_their_commit(tasks: Any) -> None:
    with transaction.atomic(using="other"):
        Heroless.start(using="other")
        assert not tasks.exists()

    (task,) = tasks.all()
    assert task.args_kwargs["args"][1] == "other"


def test_queue_priority_and_time_are_passed_on(tasks: Any) -> None:
    at = clock.now() + timedelta(days=9)
    Heroless.start(at=at, job_options={"queue": "deadly", "priority": 7})
    Heroless.start(job_options={"priority": -1000})

    later, now = tasks.order_by("priority")
    assert (later.queue_name, later.priority) == ("deadly", -7)
    # By the host's clock, which may be a little off the database's.
    assert abs(clock.utc(later.run_after) - at) < timedelta(seconds=5)
    assert (now.queue_name, now.priority) == ("default", 100)
    assert now.task.run_after is None


def test_a_backend_without_delays_is_fed_when_it_is_due(tasks_table: None, settings: Settings) -> None:
    module = tasks_module().__name__
    settings.TASKS = {"default": {"BACKEND": f"{module}.backends.immediate.ImmediateBackend"}}
    settings.GENEVA_DRIVE = {"DISPATCHER": PATH}

    waiting = Heroless.start(at=clock.now() + timedelta(minutes=1))
    workflow = Heroless.start()

    workflow.refresh_from_db()
    assert workflow.state == "finished"
    assert waiting.executions.get().dispatched_at is None
    assert not DjangoTasks().enqueues_inside("default")


def test_undeclared_queues_are_reported_by_the_check(tasks: Any, settings: Settings) -> None:
    class Printing(Workflow):
        may_proceed_without_hero = True

        class Meta:
            app_label = "testapp"

        @step(queue="printer")
        def print_it(self) -> None: ...

    (error,) = [each for each in check_dispatcher() if each.id == "geneva_drive.E071"]
    assert "printer" in error.msg
    settings.GENEVA_DRIVE = {"DISPATCHER": (PATH, {"queues": {"printer": "default"}})}
    assert not any("printer" in each.msg for each in check_dispatcher())


def test_an_undeclared_queue_costs_nothing_but_time(tasks: Any, caplog: pytest.LogCaptureFixture) -> None:
    with transaction.atomic():
        workflow = Heroless.start(job_options={"queue": "nowhere"})

    assert "could not be dispatched" in caplog.text
    assert workflow.executions.get().dispatched_at is None


def test_a_backend_that_is_not_declared_is_named(tasks: Any, settings: Settings) -> None:
    with pytest.raises(DispatcherError, match="'elsewhere'"):
        DjangoTasks(backend="elsewhere")
    settings.GENEVA_DRIVE = {"DISPATCHER": (PATH, {"backend": "elsewhere"})}
    assert "elsewhere" in next(each.msg for each in check_dispatcher() if each.id == "geneva_drive.E070")


def test_without_the_framework_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geneva_drive.dispatchers.django_tasks_entry.find_spec", lambda name: None)
    with pytest.raises(DispatcherError, match=r"geneva_drive\[tasks\]"):
        DjangoTasks()

"""Every log record about a workflow identifies it in the same fields."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from geneva_drive import Workflow, step
from geneva_drive.conf import settings as geneva
from geneva_drive.execution import prepare
from geneva_drive.execution.executor import execute
from geneva_drive.housekeeping import recover
from geneva_drive.lifecycle import dispatch
from geneva_drive.logs import FIELDS
from geneva_drive.testing import assert_state, crash_at, run_next_step, travel
from geneva_drive.worker import Worker
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


class Logging(Workflow):
    hero: Any
    hero_model = "testapp.Order"
    does: ClassVar[Callable[[Any], Any]]

    class Meta:
        app_label = "testapp"

    @step
    def first(self) -> None:
        type(self).does(self)

    @step
    def second(self) -> None: ...


def start(does: Callable[[Any], Any]) -> Logging:
    Logging.does = staticmethod(does)
    return Logging.start(Order.objects.create())


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: vars(record).get(name, "missing") for name in FIELDS}


def expected(workflow: Workflow, execution_id: Any = None, step: str = "first") -> dict[str, Any]:
    return {
        "workflow_type": "testapp.Logging",
        "workflow_id": workflow.pk,
        "hero": f"testapp.order {workflow.hero_id}",
        "execution_id": execution_id or workflow.executions.order_by("pk")[0].pk,
        "step": step,
    }


def from_us(caplog: pytest.LogCaptureFixture, level: int = logging.DEBUG) -> list[logging.LogRecord]:
    return [
        record
        for record in caplog.records
        if record.levelno >= level and record.name.startswith("geneva_drive.")
    ]


def test_a_steps_logger_adds_the_fields_and_keeps_the_steps_extra(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="geneva_drive")

    def speak(workflow: Any) -> None:
        workflow.logger.info("shipped %s parcels", 3, extra={"carrier": "DHL", "step": "never hides ours"})
        workflow.logger.warning("without anything of its own")

    workflow = run_next_step(start(speak))

    first, second = from_us(caplog)
    assert first.name == "geneva_drive.step"
    assert first.getMessage() == "shipped 3 parcels"
    assert vars(first)["carrier"] == "DHL"
    assert fields(first) == fields(second) == expected(workflow)


def test_a_failed_step_is_logged_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def fail(workflow: Any) -> None:
        raise KeyError("no stock")

    workflow = run_next_step(start(fail), raise_errors=False)

    (record,) = from_us(caplog, logging.ERROR)
    assert record.name == "geneva_drive.errors"
    assert fields(record) == expected(workflow)
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], KeyError)
    assert "no stock" in record.getMessage()


@pytest.mark.parametrize("step_name", ["first", "second"])
@pytest.mark.django_db(transaction=True)
def test_a_worker_logs_no_second_record_and_the_record_names_the_failed_step(
    step_name: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(workflow: Any) -> None:
        if workflow.current_execution.step_name == step_name:
            raise KeyError("no stock")

    monkeypatch.setattr(Logging, "second", fail)
    workflow = start(fail)

    Worker(drain=True, poll_interval=0.01, listen=False).run()

    (record,) = from_us(caplog, logging.ERROR)
    failed = workflow.executions.get(state="failed")
    assert failed.step_name == step_name
    assert fields(record) == expected(workflow, failed.pk, step_name)


@pytest.mark.django_db(transaction=True)
def test_the_immediate_dispatcher_logs_no_second_record_either(
    caplog: pytest.LogCaptureFixture, settings: Any
) -> None:
    settings.GENEVA_DRIVE = {"DISPATCHER": "geneva_drive.dispatchers.Immediate"}

    def fail(workflow: Any) -> None:
        raise KeyError("no stock")

    workflow = start(fail)

    assert_state(workflow, "paused")
    (record,) = from_us(caplog, logging.ERROR)
    assert fields(record) == expected(workflow)


class Unformattable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


def test_an_error_that_cannot_be_formatted_is_still_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(workflow: Any) -> None:
        raise Unformattable

    workflow = run_next_step(start(fail), raise_errors=False)

    records = from_us(caplog, logging.ERROR)
    assert records
    assert {tuple(fields(record).items()) for record in records} == {tuple(expected(workflow).items())}


def test_a_recovery_has_the_fields(caplog: pytest.LogCaptureFixture) -> None:
    workflow = start(lambda workflow: None)
    with crash_at("performed"):
        run_next_step(workflow)

    with travel(geneva.STUCK_AFTER + timedelta(minutes=1)):
        recover("default")

    (record,) = from_us(caplog, logging.WARNING)
    assert "was recovered" in record.getMessage()
    assert fields(record) == expected(workflow)


def test_a_fenced_result_has_the_fields(caplog: pytest.LogCaptureFixture) -> None:
    def meanwhile(workflow: Any) -> None:
        workflow.executions.update(attempt_token=uuid.uuid4())

    workflow = run_next_step(start(meanwhile))

    (record,) = from_us(caplog, logging.WARNING)
    assert "was recovered or changed while the step was running" in record.getMessage()
    assert fields(record) == expected(workflow)


def test_a_failed_dispatch_has_the_fields(caplog: pytest.LogCaptureFixture, settings: Any) -> None:
    workflow = start(lambda workflow: None)
    settings.GENEVA_DRIVE = {"DISPATCHER": "geneva_drive.not_there.Dispatcher"}

    assert dispatch.dispatch(workflow.executions.get()) is False

    (record,) = from_us(caplog, logging.ERROR)
    assert fields(record) == expected(workflow)


def test_a_row_that_cannot_be_prepared_has_the_fields(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    workflow = start(lambda workflow: None)
    execution = workflow.executions.get()

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("cannot be prepared")

    monkeypatch.setattr(prepare, "advance", broken)
    monkeypatch.setattr("geneva_drive.execution.fast_path_sql.can_run", lambda using: False)
    execute(execution.pk)

    (record,) = from_us(caplog, logging.ERROR)
    assert "could not be prepared" in record.getMessage()
    assert fields(record) == expected(workflow) | {"hero": None}


def test_a_deleted_execution_is_not_an_error(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="geneva_drive")
    workflow = start(lambda workflow: None)
    execution = workflow.executions.get()
    workflow.executions.all().delete()

    execute(execution.pk)

    (record,) = from_us(caplog)
    assert record.levelno == logging.INFO
    assert fields(record) == dict.fromkeys(FIELDS) | {"execution_id": execution.pk}

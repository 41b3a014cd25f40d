"""explain(): one sentence for each reason why a workflow does not move."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar
from uuid import uuid4

import pytest
from django.utils.translation import override, trans_real

from geneva_drive import ExceptionPolicy, Workflow, clock, removed_step, step
from geneva_drive.conf import settings as geneva
from geneva_drive.dispatchers import Dispatcher
from geneva_drive.housekeeping import recover
from geneva_drive.models import Process
from geneva_drive.models.querysets import StepExecutionQuerySet
from geneva_drive.reports.explain import explain
from geneva_drive.testing import crash_at, run_next_step, run_to_end, travel
from tests.catalogs import write_catalog

pytestmark = pytest.mark.django_db

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00"


class Explained(Workflow):
    may_proceed_without_hero = True
    does: ClassVar[Callable[[Any], Any] | None] = None

    class Meta:
        app_label = "testapp"

    @step(queue="mail", on_exception=ExceptionPolicy("reattempt", matching=OSError, max_reattempts=1))
    def ship(self) -> None:
        body = type(self).does
        if body is not None:
            body(self)

    @step(wait=timedelta(days=3))
    def thank(self) -> None: ...

    @step(wait_for="scanned")
    def scan(self) -> None: ...

    old = removed_step()


@pytest.fixture(autouse=True)
def _as_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Explained, "does", None)


def raises(error: BaseException) -> None:
    def body(workflow: Any) -> None:
        raise error

    Explained.does = staticmethod(body)


def says(workflow: Workflow, pattern: str) -> None:
    """Assert the whole sentence; ``TIME`` in the pattern matches a moment."""
    sentence = explain(workflow)
    assert re.fullmatch(pattern.replace("TIME", TIME), sentence), sentence
    assert sentence.count("\n") == 0


def worker(age: timedelta = timedelta(0), queues: str = "") -> Process:
    moment = clock.local(clock.now() - age)
    return Process.objects.create(
        id=uuid4(),
        hostname="box",
        pid=17,
        kind="worker",
        queues=queues,
        started_at=moment,
        heartbeat_at=moment,
    )


# -- ready


def test_not_due_until() -> None:
    workflow = run_next_step(Explained.start())
    says(workflow, r"Its step 'thank' is not due until TIME\.")


def test_due_and_a_worker_is_live() -> None:
    workflow = Explained.start()
    worker()
    says(
        workflow,
        r"Its step 'ship' has been due since TIME and waits for a free worker on the queue 'mail'\.",
    )


@pytest.mark.parametrize("queues", ["mail", "default,mail"])
def test_due_and_a_worker_serves_its_queue(queues: str) -> None:
    workflow = Explained.start()
    worker(queues=queues)
    says(
        workflow,
        r"Its step 'ship' has been due since TIME and waits for a free worker on the queue 'mail'\.",
    )


@pytest.mark.parametrize("there", ["nobody", "another queue", "a queue of a longer name", "dead"])
def test_due_and_no_live_process_serves_its_queue(there: str) -> None:
    workflow = Explained.start()
    if there == "another queue":
        worker(queues="default,letters")
    elif there == "a queue of a longer name":
        worker(queues="email")
    elif there == "dead":
        worker(geneva.LEASE * 2)

    says(
        workflow,
        r"Its step 'ship' has been due since TIME, but no live process serves the queue 'mail': start a worker "
        r"for it\.",
    )


REMEMBERING = {"DISPATCHER": "tests.reports.test_explain.Remembering"}


class Remembering(Dispatcher):
    """A dispatcher whose broker loses every message."""

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        return None


def test_a_lost_dispatch(settings: Any) -> None:
    settings.GENEVA_DRIVE = REMEMBERING
    workflow = Explained.start()
    says(
        workflow,
        r"Its step 'ship' has been due since TIME and was never dispatched: housekeeping will dispatch it\.",
    )


def test_an_overdue_dispatch(settings: Any) -> None:
    settings.GENEVA_DRIVE = REMEMBERING
    workflow = Explained.start()
    workflow.executions.update(dispatched_at=clock.local(clock.now()))
    says(
        workflow,
        r"Its step 'ship' has been due since TIME and was dispatched at TIME, but no job has started it: "
        r"housekeeping will dispatch it again after TIME\.",
    )


def test_an_undeclared_step() -> None:
    workflow = Explained.start()
    workflow.executions.update(step_name="newer")
    says(
        workflow,
        r"This code declares no step 'newer' in testapp\.Explained: it does not continue until a worker "
        r"runs code that declares it\.",
    )
    run_next_step(workflow)
    says(
        workflow,
        r"This code declares no step 'newer' in testapp\.Explained: it has been deferred since TIME, and pauses at "
        r"TIME unless a worker "
        r"runs code that declares it\.",
    )


def test_an_undeclared_step_after_the_grace_period() -> None:
    workflow = Explained.start()
    workflow.executions.update(step_name="newer")
    run_next_step(workflow)
    with travel(geneva.UNDEFINED_STEP_GRACE + timedelta(minutes=1)):
        says(
            workflow,
            r"This code declares no step 'newer' in testapp\.Explained: it has been deferred since TIME, and pauses "
            r"at the next attempt unless a worker "
            r"runs code that declares it\.",
        )


def test_an_undeclared_class() -> None:
    workflow = Explained.start()
    Workflow.objects.filter(pk=workflow.pk).update(type="testapp.FromNewerCode")
    says(
        Workflow.objects.get(pk=workflow.pk),
        r"This code declares no workflow class 'testapp\.FromNewerCode': it does not continue until a worker "
        r"runs code that declares it\.",
    )


def test_waiting_for_a_signal() -> None:
    workflow = Explained.start()
    workflow.executions.update(step_name="scan")
    run_next_step(workflow)
    says(workflow, r"Its step 'scan' has been waiting for the signal 'scanned' since TIME\.")

    workflow.executions.update(wait_deadline=clock.local(clock.now() + timedelta(days=1)))
    says(
        workflow,
        r"Its step 'scan' has been waiting for the signal 'scanned' since TIME, and waits until TIME at the latest\.",
    )


def test_waiting_for_a_signal_that_the_step_no_longer_waits_for() -> None:
    workflow = Explained.start()
    workflow.executions.update(state="waiting", waiting_since=clock.local(clock.now()))
    says(
        workflow,
        r"Its step 'ship' has been waiting since TIME for a signal that this code no longer waits for: "
        r"the next maintenance run will schedule it\.",
    )


def test_no_active_execution() -> None:
    workflow = Explained.start()
    workflow.executions.all().delete()
    says(workflow, r"It is ready and has no active execution, which should not happen: .*\.")


# -- performing


def crashed(process: Process | None) -> Explained:
    workflow = Explained.start()
    with crash_at("performed"):
        run_next_step(workflow)
    workflow.executions.update(process=process)
    return workflow


def test_in_a_live_process() -> None:
    workflow = crashed(worker())
    says(workflow, r"Its step 'ship' has been in progress since TIME on box, process 17, which is alive\.")

    workflow.pause(by="anna", reason="stock is counted")
    says(
        workflow,
        r"Its step 'ship' has been in progress since TIME on box, process 17; it will pause after that step, "
        r"as requested by anna \(stock is counted\)\.",
    )


def test_in_a_process_with_a_late_heartbeat() -> None:
    workflow = crashed(worker(geneva.LEASE * 2 / 3))
    says(
        workflow,
        r"Its step 'ship' has been in progress since TIME on box, process 17 \(last heartbeat TIME\): it will "
        r"be recovered after TIME unless another heartbeat arrives\.",
    )


def test_in_a_dead_process() -> None:
    workflow = crashed(worker(geneva.LEASE * 2))
    says(
        workflow,
        r"Its step 'ship' has been in progress since TIME on box, process 17 \(last heartbeat TIME; "
        r"presumed dead\): the next housekeeping will recover it\.",
    )


def test_in_a_process_whose_row_was_deleted() -> None:
    workflow = crashed(None)
    workflow.executions.update(process_id=uuid4())
    says(
        workflow,
        r"Its step 'ship' has been in progress since TIME in a process that no longer exists: the next housekeeping "
        r"will recover it\.",
    )


def test_in_an_unknown_process() -> None:
    says(
        crashed(None),
        r"Its step 'ship' has been in progress since TIME in an unknown process: it will be recovered after TIME\.",
    )


# -- paused


@pytest.mark.parametrize(
    ("by", "reason", "told"),
    [
        ("anna", "stock is counted", r" by anna \(stock is counted\)"),
        ("anna", "", " by anna"),
        (None, "", " manually"),
    ],
)
def test_paused_by_an_operator(by: str | None, reason: str, told: str) -> None:
    workflow = Explained.start().pause(by=by, reason=reason)
    says(workflow, rf"It was paused{told} at TIME\.")


def test_paused_by_an_operator_during_a_step() -> None:
    Explained.does = staticmethod(lambda workflow: Explained.objects.get(pk=workflow.pk).pause(by="anna"))
    says(run_next_step(Explained.start()), r"It was paused by anna at TIME\.")


def test_paused_by_an_operator_while_a_process_died() -> None:
    workflow = crashed(None).pause(by="anna")
    with travel(geneva.STUCK_AFTER + timedelta(minutes=1)):
        recover("default")
    says(workflow, r"It was paused by anna at TIME\.")


def test_paused_by_an_error() -> None:
    raises(KeyError("no stock"))
    workflow = run_next_step(Explained.start(), raise_errors=False)
    says(
        workflow,
        r"It was paused at TIME because its step 'ship' failed with builtins\.KeyError: 'no stock'\.",
    )


def test_paused_by_an_error_after_an_operator_resumed_it() -> None:
    raises(KeyError("no stock"))
    workflow = Explained.start().pause(by="anna").resume(by="anna")
    with travel(timedelta(minutes=1)):
        run_next_step(workflow, raise_errors=False)
    says(
        workflow,
        r"It was paused at TIME because its step 'ship' failed with builtins\.KeyError: 'no stock'\.",
    )


def test_paused_by_the_latest_error_whatever_the_order_of_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    raises(KeyError("the first"))
    workflow = run_next_step(Explained.start(), raise_errors=False).resume()
    raises(KeyError("the second"))
    run_next_step(workflow, raise_errors=False)
    says(workflow, r".* 'the second'\.")

    # As if the keys were in the other order, as can happen with hosts whose clocks differ.
    monkeypatch.setattr(StepExecutionQuerySet, "latest_first", lambda rows: rows.order_by("pk"))
    says(workflow, r".* 'the first'\.")


def test_paused_by_an_error_of_many_lines() -> None:
    raises(KeyError("a\nb" * 500))
    workflow = run_next_step(Explained.start(), raise_errors=False)
    says(
        workflow,
        r"It was paused at TIME because its step 'ship' failed with builtins\.KeyError: .{200,300}\.",
    )


def test_paused_by_an_error_whose_message_is_a_sentence() -> None:
    raises(KeyError("unused"))
    workflow = run_next_step(Explained.start(), raise_errors=False)
    workflow.executions.update(error_message="Ada wants an address.")
    says(
        workflow,
        r"It was paused at TIME because its step 'ship' failed with builtins\.KeyError: Ada wants an address\.",
    )


def test_paused_after_the_last_reattempt() -> None:
    raises(OSError("no answer"))
    workflow = run_to_end(Explained.start(), raise_errors=False)
    says(
        workflow,
        r"It was paused at TIME because its step 'ship' failed with builtins\.OSError: no answer "
        r"\(used up its reattempts: 1 in a row\)\.",
    )


def test_paused_by_the_step_itself() -> None:
    Explained.does = staticmethod(lambda workflow: workflow.pause(reason="ask the customer"))
    says(
        run_next_step(Explained.start()),
        r"It was paused at TIME by its step 'ship' \(ask the customer\)\.",
    )


def test_paused_by_crashes(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"MAX_CRASHES": 1}
    workflow = crashed(None)
    with travel(geneva.STUCK_AFTER + timedelta(minutes=1)):
        recover("default")
    says(
        workflow,
        r"It was paused at TIME because its step 'ship' failed with geneva_drive\.exceptions\.ProcessDied: .* "
        r"\(crashed 1 times in a row\)\.",
    )


def test_paused_by_an_undeclared_step(settings: Any) -> None:
    settings.GENEVA_DRIVE = {"UNDEFINED_STEP_GRACE": timedelta(0)}
    workflow = Explained.start()
    workflow.executions.update(step_name="newer")
    run_next_step(workflow, raise_errors=False)
    says(
        workflow,
        r"It was paused at TIME because its step 'newer' failed with geneva_drive\.exceptions\.StepNotDefinedError: "
        r".*\.",
    )


# -- ended, deleted


def test_finished_and_canceled() -> None:
    Explained.does = staticmethod(lambda workflow: workflow.finish())
    says(run_to_end(Explained.start()), r"It has ended: it was finished at TIME\.")
    says(Explained.start().cancel(), r"It has ended: it was canceled at TIME\.")


def test_deleted() -> None:
    workflow = Explained.start()
    Workflow.objects.filter(pk=workflow.pk).delete()
    says(workflow, rf"Workflow {workflow.pk} no longer exists: its row was deleted\.")


@pytest.mark.parametrize("given", [1, None, "4711", Explained])
def test_a_value_that_is_not_a_workflow_is_refused_with_a_hint(given: Any) -> None:
    with pytest.raises(TypeError, match=r"takes a workflow, not .* Workflow\.objects\.get\(pk=\.\.\.\)"):
        explain(given)


def test_an_unsaved_workflow_is_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match=r"this Explained has not been saved\. Use start\(\)"):
        explain(Explained())


def test_a_stale_instance_is_read_again() -> None:
    workflow = Explained.start()
    Explained.objects.get(pk=workflow.pk).cancel()
    says(workflow, r"It has ended: it was canceled at TIME\.")


def test_it_uses_the_active_language(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = {
        "Its step '%(step)s' is not due until %(due)s.": "Vor %(due)s ist „%(step)s“ nicht fällig.",
        "It was paused %(who)s at %(time)s.": "Um %(time)s %(who)s angehalten.",
        "by %(actor)s": "von %(actor)s",
        "canceled": "abgebrochen",
        "It has ended: it was %(state)s at %(time)s.": "Zu Ende: um %(time)s %(state)s.",
    }
    write_catalog(tmp_path, "de", messages)
    settings.LOCALE_PATHS = [str(tmp_path)]
    monkeypatch.setattr(trans_real, "_translations", {})
    workflow = Explained.start(at=clock.now() + timedelta(days=1))

    with override("de"):
        says(workflow, "Vor TIME ist „ship“ nicht fällig.")
        says(workflow.pause(by="anna"), "Um TIME von anna angehalten.")
        workflow.cancel()
        says(workflow, "Zu Ende: um TIME abgebrochen.")
    with override("en"):
        says(workflow, "It has ended: it was canceled at TIME.")

"""Each index serves its query on every database, in tables full of other rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from geneva_drive import Signal, SignalMatcher, StepExecution, Workflow, clock
from geneva_drive.execution import signal_timeouts
from geneva_drive.lifecycle import signals
from tests.worker import tables

EXECUTIONS = StepExecution._meta.db_table
SIGNALS = Signal._meta.db_table

pytestmark = pytest.mark.django_db


@pytest.fixture(scope="module", autouse=True)
def _full_tables(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    with django_db_blocker.unblock():
        _empty()
        tables.fill(400)
        now = clock.now()
        soon, before = now + timedelta(days=3), now - timedelta(days=3)
        # Waiting without a deadline, before it, on hold after it, and ten whose deadline has passed.
        for count, deadline, held in (
            (400, None, False),
            (400, soon, False),
            (400, before, True),
            (10, before, False),
        ):
            tables._write(count, "paused" if held else "ready", "waiting", now, now, on_hold=held)
            written = StepExecution.objects.order_by("-pk").values_list("pk", flat=True)[:count]
            StepExecution.objects.filter(pk__in=list(written)).update(
                wait_deadline=None if deadline is None else clock.local(deadline)
            )
        _signals(now)
        tables.analyze()
        yield
        _empty()


def _signals(now: Any) -> None:
    """Write signals of many workflows, nearly all of them consumed."""
    keys = list(Workflow.objects.order_by("pk").values_list("pk", flat=True))
    Signal.objects.bulk_create(
        (
            Signal(
                workflow_id=key,
                name=name,
                idempotency_key=f"{name} of {key}",
                state="consumed" if number % 100 else "pending",
                created_at=clock.local(now),
            )
            for number, key in enumerate(keys)
            for name in ("go", "stop")
        ),
        batch_size=500,
    )
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {'TABLE ' if connection.vendor == 'mysql' else ''}{SIGNALS}")
        if connection.vendor == "mysql":
            cursor.fetchall()


def _empty() -> None:
    Signal.objects.all()._raw_delete("default")
    tables.empty()


def _all_use(found: list[tables.Plan], indexes: tuple[str, ...], *, table: str) -> None:
    assert found
    for plan in found:
        assert any(map(plan.uses, indexes)), plan
        assert not plan.reads_whole(table), plan


@pytest.mark.parametrize("whole_workflow", [False, True], ids=["of a name", "of any name"])
def test_an_index_finds_the_oldest_unconsumed_signal_of_a_workflow(whole_workflow: bool) -> None:
    class Anything:
        def matches(self, signal: Any) -> bool:
            return True

    workflow = Workflow.objects.filter(signals__state="pending").first()
    assert workflow is not None
    matcher = Anything() if whole_workflow else SignalMatcher("go")

    def find() -> None:
        with transaction.atomic():
            signal = signals.find(workflow, matcher)
            assert signal is not None
            assert signal.name == "go"

    found = tables.plans(find, table=SIGNALS)
    # The constraint's index starts with the workflow, and is as good if that has few signals.
    _all_use(
        found, ("geneva_signal_unconsumed", "geneva_one_signal_per_key", "sqlite_autoindex"), table=SIGNALS
    )


def test_an_index_finds_the_signal_of_a_key() -> None:
    workflow = Workflow.objects.filter(signals__state="pending").first()
    assert workflow is not None

    found = tables.plans(
        lambda: workflow.signals.filter(name="go", idempotency_key=f"go of {workflow.pk}").get(),
        table=SIGNALS,
    )

    # SQLite does not keep the name of a constraint's index.
    _all_use(found, ("geneva_one_signal_per_key", "sqlite_autoindex"), table=SIGNALS)


def test_an_index_finds_all_unconsumed_signals() -> None:
    """Housekeeping when few signals are pending and many workflows wait."""
    found = tables.plans(lambda: list(Signal.objects.filter(state="pending")), table=SIGNALS)

    _all_use(found, ("geneva_signal_unconsumed",), table=SIGNALS)


def test_an_index_finds_passed_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal_timeouts, "_PAGE", 4)
    rows: list[Any] = []

    found = tables.plans(lambda: rows.extend(signal_timeouts._due("default")), table=EXECUTIONS)

    assert len(rows) == 10
    assert len(found) == 3
    _all_use(found, ("geneva_execution_timeout",), table=EXECUTIONS)

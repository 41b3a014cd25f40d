"""Many rows, written in bulk, and the plans that a database makes over them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

from django.contrib.contenttypes.models import ContentType
from django.db import connection, models
from django.test.utils import CaptureQueriesContext

from geneva_drive import clock
from geneva_drive.models import OperatorAction, Process, StepExecution, Workflow

__all__ = ["Plan", "analyze", "empty", "fill", "plans"]


def fill(count: int) -> None:
    """Write ``count`` workflows of each kind that a scan must not be slowed down by, with one execution each.

    Finished, due next month, held, in progress under a live process; and ten each that the scans look for.
    """
    now = clock.now()
    alive, dead = _process(now), _process(now - timedelta(days=1))
    Process.objects.bulk_create([alive, dead])
    moment = timedelta(minutes=1)
    _write(count, "finished", "completed", now - 90 * moment, now, transitioned_at=now - 10 * moment)
    _write(10, "finished", "completed", now, now, transitioned_at=now - timedelta(days=100))
    _write(count, "ready", "scheduled", now + timedelta(days=30), now)
    _write(count, "paused", "scheduled", now - timedelta(days=2), now, on_hold=True)
    _write(count, "performing", "in_progress", now - moment, now, process=alive, started_at=now)
    _write(10, "performing", "in_progress", now - moment, now, process=dead, started_at=now)
    _write(10, "performing", "in_progress", now - moment, now, started_at=now - timedelta(days=2))
    _write(10, "ready", "scheduled", now - moment, now)
    Process.objects.bulk_create(_process(now) for _ in range(count))
    analyze()


def _key(number: int) -> Any:
    """The key of the row of this number. A UUID begins with the clock, and so grows as well."""
    key = Workflow._meta.pk
    return number if isinstance(key, models.AutoField) else key.get_default()


def _process(heartbeat: datetime) -> Process:
    return Process(
        id=uuid4(),
        hostname="here",
        pid=1,
        kind="worker",
        started_at=clock.local(heartbeat),
        heartbeat_at=clock.local(heartbeat),
    )


def _write(
    count: int,
    state: str,
    execution_state: str,
    due: datetime,
    now: datetime,
    *,
    transitioned_at: datetime | None = None,
    on_hold: bool = False,
    process: Process | None = None,
    started_at: datetime | None = None,
) -> None:
    hero_type = ContentType.objects.get_for_model(Process)
    first = Workflow.objects.count()
    workflows = [
        Workflow(
            pk=_key(first + number),
            type=f"testapp.Kind{number % 20}",
            hero_type=hero_type,
            hero_id=first + number,
            state=state,
            created_at=clock.local(now),
            updated_at=clock.local(now),
            transitioned_at=clock.local(transitioned_at) if transitioned_at else None,
        )
        for number in range(1, count + 1)
    ]
    models.QuerySet.bulk_create(Workflow._base_manager.all(), workflows, batch_size=500)
    StepExecution.objects.bulk_create(
        (
            StepExecution(
                workflow_id=workflow.pk,
                step_name="one",
                state=execution_state,
                queue="default",
                scheduled_for=clock.local(due),
                on_hold=on_hold,
                process=process,
                attempt_token=uuid4() if execution_state == "in_progress" else None,
                started_at=clock.local(started_at) if started_at else None,
                created_at=clock.local(now),
            )
            for workflow in workflows
        ),
        batch_size=500,
    )


def empty() -> None:
    """Delete every row that ``fill`` wrote."""
    if connection.vendor == "postgresql":
        # In new files: what other tests rolled back lies about in the old ones, and plans are made by their size.
        quote = connection.ops.quote_name
        names = ", ".join(
            quote(each._meta.db_table) for each in (StepExecution, OperatorAction, Workflow, Process)
        )
        with connection.cursor() as cursor:
            cursor.execute(f"TRUNCATE {names} CASCADE")
        return
    for model in (StepExecution, OperatorAction, Workflow, Process):
        model._base_manager.all()._raw_delete("default")


def analyze() -> None:
    """Let the database count, so that its plans do not depend on when it last did by itself."""
    with connection.cursor() as cursor:
        for model in (StepExecution, Workflow, Process):
            table = connection.ops.quote_name(model._meta.db_table)
            cursor.execute(f"ANALYZE {'TABLE ' if connection.vendor == 'mysql' else ''}{table}")
            if connection.vendor == "mysql":
                cursor.fetchall()


class Plan:
    """One statement and what the database would do for it."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        with connection.cursor() as cursor:
            cursor.execute(f"{_explain()} {sql.replace('%', '%%')}", [])
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        self.rows: list[dict[str, Any]] = rows
        self.text = "\n".join(" ".join(str(value) for value in row.values()) for row in rows)

    def __repr__(self) -> str:
        return f"{self.sql}\n{self.text}"

    def uses(self, index: str) -> bool:
        return index in self._chosen()

    def reads_whole(self, table: str) -> bool:
        """Whether any part of it goes through all rows of ``table``."""
        if connection.vendor == "postgresql":
            return f"Seq Scan on {table}" in self.text
        if connection.vendor == "sqlite":
            return f"SCAN {table}" in self.text and "USING" not in self.text
        return any(row["table"] == table and row["type"] in ("ALL", "index") for row in self.rows)

    def sorts(self) -> bool:
        """Whether rows are sorted rather than read in order."""
        if connection.vendor == "postgresql":
            return "Sort" in self.text
        if connection.vendor == "sqlite":
            return "USE TEMP B-TREE FOR ORDER BY" in self.text
        return any("filesort" in (row["Extra"] or "") for row in self.rows)

    def _chosen(self) -> str:
        if connection.vendor == "mysql":
            # possible_keys names indexes too that were not chosen.
            return " ".join(row["key"] or "" for row in self.rows)
        return self.text


def _explain() -> str:
    if connection.vendor == "sqlite":
        return "EXPLAIN QUERY PLAN"
    if connection.vendor == "mysql" and not getattr(connection, "mysql_is_mariadb", False):
        return "EXPLAIN FORMAT=TRADITIONAL"
    return "EXPLAIN"


def plans(act: Callable[[], object], *, table: str | None = None) -> list[Plan]:
    """Return the plans of the queries that ``act`` makes, as it makes them; on ``table`` alone if given."""
    with CaptureQueriesContext(connection) as captured:
        act()
    statements = [query["sql"] for query in captured.captured_queries]
    return [Plan(sql) for sql in statements if sql.startswith("SELECT") and (table is None or table in sql)]

"""What the doctor says."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.core.checks import Error, Warning  # noqa: A004 - Django's own names
from django.db import DatabaseError, connections, router
from django.db.models import Count, OuterRef, Q, Subquery

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.lifecycle.dispatch import configured_dispatcher
from geneva_drive.models import columns
from geneva_drive.models.records import OperatorAction, Process, Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.in_flight import undeclared_in_flight
from geneva_drive.reports.wording import in_words, whole_seconds
from geneva_drive.states import ExecutionState, WorkflowState

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    level
        "ok", "note", "warning" or "error".
    subject
        What was looked at, in a word or two.
    """

    level: str
    subject: str
    message: str
    hint: str = ""


MODELS = (Workflow, StepExecution, Signal, Process, OperatorAction)


def missing_tables(connection: BaseDatabaseWrapper) -> list[str]:
    """Return those of our tables that are not there, in the models' order."""
    with connection.cursor() as cursor:
        existing = set(connection.introspection.table_names(cursor))
    return [model._meta.db_table for model in MODELS if model._meta.db_table not in existing]


def tables(alias: str) -> Iterator[Finding]:
    connection = connections[alias]
    lost_tables = missing_tables(connection)
    lost_columns: list[str] = []
    with connection.cursor() as cursor:
        for model in MODELS:
            table = model._meta.db_table
            if table in lost_tables:
                continue
            real = {column.name for column in connection.introspection.get_table_description(cursor, table)}
            # SQLite lists no generated columns there; what is unique on them is looked at below.
            stored = [each for each in model._meta.concrete_fields if not getattr(each, "generated", False)]
            lost_columns += [
                f"{table}.{name}" for name in sorted({str(each.column) for each in stored} - real)
            ]
            names = set(connection.introspection.get_constraints(cursor, table))
            wanted = [str(each.name) for each in (*model._meta.constraints, *model._meta.indexes)]
            for missing in sorted(set(wanted) - names):
                yield Finding(
                    "error",
                    "constraints",
                    f"{missing} on {table} is missing: a guarantee or a fast look-up of the library is not held.",
                    "Make it again, for example from sqlmigrate's output.",
                )
    if lost_tables:
        yield Finding(
            "error", "tables", f"{_missing('table', lost_tables)}.", f"Run migrate --database {alias}."
        )
    if lost_columns:
        yield Finding(
            "error",
            "tables",
            f"{_missing('column', lost_columns)}.",
            f"Run migrate --database {alias}: the code is newer than the tables.",
        )


def _missing(what: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"The {what} {names[0]} is missing"
    return f"The {what}s {', '.join(names)} are missing"


_MANY = 10_000


def rows(alias: str) -> Iterator[Finding]:
    now = clock.now(alias)
    limit = in_words(settings.OVERDUE_AFTER)
    overdue = StepExecution.objects.using(alias).overdue(now - settings.OVERDUE_AFTER)
    late = overdue[:_MANY].count()
    if late:
        oldest = overdue.order_by("scheduled_for").values_list("scheduled_for", flat=True).first()
        behind = now - clock.utc(oldest) if oldest is not None else timedelta(0)
        yield Finding(
            "warning",
            "overdue",
            f"{_count(late)} executions are overdue by more than {limit}, the oldest by "
            f"{in_words(whole_seconds(behind))}.",
            "Look for live processes on those queues; geneva_list --overdue lists the workflows.",
        )
    stuck = StepExecution.objects.using(alias).filter(
        state=ExecutionState.IN_PROGRESS, process__isnull=True, started_at__lt=now - settings.STUCK_AFTER
    )
    lost = stuck[:_MANY].count()
    if lost:
        yield Finding(
            "warning",
            "stuck",
            f"{_count(lost)} executions are in progress without a known process for more than "
            f"{in_words(settings.STUCK_AFTER)}.",
            "geneva_housekeeping recovers them.",
        )
    if not late and not lost:
        yield Finding("ok", "rows", f"Nothing is overdue by more than {limit}, and nothing is stuck.")


def undeclared(alias: str) -> Iterator[Finding]:
    """Workflows of classes and at steps that this code does not declare."""
    for found in undeclared_in_flight(alias):
        label, step = found.type, found.step
        states = ", ".join(
            f"{found.states[state]} {state}" for state in WorkflowState.values if state in found.states
        )
        if step is None:
            yield Finding(
                "warning",
                "undeclared",
                f"{found.workflows} workflows are of the class {label}, which this code does not declare ({states}).",
                "Declare it again, name it in the former_types of the class that took its place, or cancel them: "
                f"geneva_cancel --type {label} --undeclared.",
            )
            continue
        yield Finding(
            "warning",
            "undeclared",
            f"{found.workflows} workflows are at the step {step!r} of {label}, which this code does not declare "
            f"({states}).",
            f"Leave a gravestone, {step} = removed_step(), or name the step that took its place: "
            f'formerly=["{step}"]. Or continue them at another step: first geneva_pause those that are ready, then '
            f"geneva_resume_at STEP, each with --type {label} --step {step}.",
        )


def failures(alias: str) -> Iterator[Finding]:
    """Workflows that are paused since their latest attempt failed, among those that were paused last."""
    attempts = StepExecution.objects.using(alias).filter(workflow_id=OuterRef("pk")).latest_first()
    paused = (
        Workflow._base_manager.using(alias).filter(state=WorkflowState.PAUSED).order_by("-transitioned_at")
    )
    latest = paused.annotate(latest=Subquery(attempts.values("state")[:1])).values("pk", "latest")[:_MANY]
    counts = latest.aggregate(all=Count("pk"), failed=Count("pk", filter=Q(latest=ExecutionState.FAILED)))
    if not counts["failed"]:
        return
    more = "+" if counts["all"] == _MANY else ""
    yield Finding(
        "warning",
        "failures",
        f"{counts['failed']}{more} workflows are paused because a step failed.",
        "geneva_list --state paused names the errors, geneva_show ID --errors tells more of one. Once the cause is "
        "mended, geneva_resume --error CLASS tries all of one error again.",
    )


def _count(count: int) -> str:
    return f"{count}{'+' if count == _MANY else ''}"


_SKEW = timedelta(seconds=5)


def examine(using: str | None = None) -> list[Finding]:
    """Look at everything; reads only. A part that cannot be looked at is itself a finding."""
    alias = using or router.db_for_read(Workflow)
    findings: list[Finding] = []
    for look in (
        tables,
        _hero_key,
        _settings,
        _dispatcher,
        _processes,
        _clock,
        rows,
        undeclared,
        failures,
    ):
        findings += _guarded(look, alias)
        if any(finding.subject == "tables" and finding.level == "error" for finding in findings):
            break  # nothing else can be asked of tables that are not there
    return findings


def _guarded(look: Callable[[str], Iterator[Finding]], alias: str) -> list[Finding]:
    name = look.__name__.strip("_").replace("_", " ")
    try:
        return list(look(alias))
    except (DatabaseError, GenevaDriveError) as error:
        return [Finding("error", name, f"It cannot be looked at: {error}", "See to the error first.")]


def _hero_key(alias: str) -> Iterator[Finding]:
    real = columns.real_hero_column(connections[alias])
    wanted = columns.declared_kind(alias)
    if real is None:
        return
    if real.kind == wanted:
        yield Finding("ok", "hero key", f"The column is {real.kind}, which suits the models in use.")
        return
    yield Finding(
        "warning",
        "hero key",
        f"The column is {real.kind}, and today's models would make it {wanted}.",
        f"geneva_hero_key says why; geneva_hero_key --to {wanted} --dry-run says whether it can be converted.",
    )


def _settings(_alias: str) -> Iterator[Finding]:
    if settings.STUCK_AFTER < settings.LEASE:
        yield Finding(
            "warning",
            "settings",
            f"STUCK_AFTER ({settings.STUCK_AFTER}) is shorter than LEASE ({settings.LEASE}).",
            "What has no process would be recovered sooner than what has a dead one. Raise STUCK_AFTER.",
        )
    if settings.LEASE.total_seconds() < 3:
        yield Finding(
            "warning",
            "settings",
            f"LEASE is {settings.LEASE}: a short pause of a process or of the network looks like its death.",
            "Use ten seconds or more outside of tests.",
        )
    if settings.RETENTION is not None and settings.RETENTION < settings.OVERDUE_AFTER:
        yield Finding(
            "warning",
            "settings",
            f"RETENTION ({settings.RETENTION}) is shorter than OVERDUE_AFTER ({settings.OVERDUE_AFTER}).",
            "History would go before anybody could look at it. Raise RETENTION.",
        )


def _dispatcher(_alias: str) -> Iterator[Finding]:
    dispatcher: Any = configured_dispatcher()
    name = settings.DISPATCHER if isinstance(settings.DISPATCHER, str) else settings.DISPATCHER[0]
    problems = dispatcher.check()
    for problem in problems:
        level = (
            "error" if isinstance(problem, Error) else "warning" if isinstance(problem, Warning) else "note"
        )
        yield Finding(level, "dispatcher", f"{name}: {problem.msg}", problem.hint or "")
    if not problems:
        yield Finding("ok", "dispatcher", f"{name}.")


def _processes(alias: str) -> Iterator[Finding]:
    now = clock.now(alias)
    processes = list(Process.objects.using(alias).order_by("-heartbeat_at")[:1000])
    alive = [each for each in processes if now - clock.utc(each.heartbeat_at) < settings.LEASE]
    dead = len(processes) - len(alive)
    if dead:
        yield Finding(
            "warning",
            "processes",
            f"{dead} stopped beating and have not been cleared away.",
            "A worker does that within half a lease; without one, run geneva_housekeeping.",
        )
    if alive:
        hosts = ", ".join(sorted({f"{each.kind} on {each.hostname}" for each in alive}))
        yield Finding("ok", "processes", f"{len(alive)} alive: {hosts}.")
        unserved = _queues_without_a_process(alias, alive)
        if unserved:
            yield Finding(
                "error",
                "queues",
                f"Work is scheduled on {', '.join(unserved)}, and no live process serves it.",
                f"Start one: geneva_worker --queues {','.join(unserved)}.",
            )
    else:
        due = StepExecution.objects.using(alias).due(now).exists()
        yield Finding(
            "error" if due else "warning",
            "processes",
            "No live process runs steps" + (", and work is due." if due else "."),
            "Start geneva_worker, or the workers of the dispatcher in use.",
        )


def _queues_without_a_process(alias: str, alive: list[Process]) -> list[str]:
    scheduled = StepExecution.objects.using(alias).free().skip_scan("queue")
    return [queue for queue in scheduled if not any(each.serves(queue) for each in alive)]


def _clock(alias: str) -> Iterator[Finding]:
    if connections[alias].vendor == "sqlite":
        return
    clock.measure(connections[alias])
    skew = datetime.fromtimestamp(time.time(), UTC) - clock.now(alias)
    if abs(skew) > _SKEW:
        seconds = skew.total_seconds()
        yield Finding(
            "note",
            "clock",
            f"This host's clock is {abs(seconds):.1f} s {'ahead of' if seconds > 0 else 'behind'} the database's.",
            "Workflows go by the database's clock; only logs of this host will look odd. Check its NTP.",
        )
    else:
        yield Finding(
            "ok", "clock", f"This host and the database agree within {abs(skew.total_seconds()):.1f} s."
        )

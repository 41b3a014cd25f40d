"""The checks of ``geneva_doctor``: tables, settings, dispatcher, processes, clocks and rows. They only read."""

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

MODELS = (Workflow, StepExecution, Signal, Process, OperatorAction)

_MANY = 10_000
"""Rows that are counted; beyond it says "10000+"."""

_SKEW = timedelta(seconds=5)


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    level: str  # "ok", "note", "warning" or "error"
    subject: str  # what was checked, in a word or two
    message: str
    hint: str = ""  # what to do about it


def examine(using: str | None = None) -> list[Finding]:
    """Run all checks. A check that cannot run is itself a finding."""
    alias = using or router.db_for_read(Workflow)
    findings = _guarded(tables, alias)
    if any(finding.subject == "tables" and finding.level == "error" for finding in findings):
        return findings  # the other checks need the tables
    for check in (_hero_key, _settings, _dispatcher, _processes, _clock, rows, undeclared, failures):
        findings += _guarded(check, alias)
    return findings


def _guarded(check: Callable[[str], Iterator[Finding]], alias: str) -> list[Finding]:
    try:
        return list(check(alias))
    except (DatabaseError, GenevaDriveError) as error:
        subject = check.__name__.strip("_").replace("_", " ")
        return [Finding("error", subject, f"The check failed: {error}", "Fix this error first.")]


def missing_tables(connection: BaseDatabaseWrapper) -> list[str]:
    """Return the tables of geneva_drive that do not exist, in the models' order."""
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
            # SQLite does not list generated columns here; the unique constraints on them are checked below.
            stored = [each for each in model._meta.concrete_fields if not getattr(each, "generated", False)]
            lost_columns += [
                f"{table}.{name}" for name in sorted({str(each.column) for each in stored} - real)
            ]
            names = set(connection.introspection.get_constraints(cursor, table))
            wanted = {str(each.name) for each in (*model._meta.constraints, *model._meta.indexes)}
            for missing in sorted(wanted - names):
                yield Finding(
                    "error",
                    "constraints",
                    f"{missing} on {table} is missing: a guarantee is not enforced, or a query is slow.",
                    "Create it again, for example from the output of sqlmigrate.",
                )
    hint = f"Run migrate --database {alias}"
    if lost_tables:
        yield Finding("error", "tables", f"{_missing('table', lost_tables)}.", f"{hint}.")
    if lost_columns:
        message = f"{_missing('column', lost_columns)}."
        yield Finding("error", "tables", message, f"{hint}: the code is newer than the tables.")


def _missing(what: str, names: list[str]) -> str:
    if len(names) == 1:
        return f"The {what} {names[0]} is missing"
    return f"The {what}s {', '.join(names)} are missing"


def rows(alias: str) -> Iterator[Finding]:
    now = clock.now(alias)
    executions = StepExecution.objects.using(alias)
    limit, stuck_after = in_words(settings.OVERDUE_AFTER), in_words(settings.STUCK_AFTER)
    overdue = executions.overdue(now - settings.OVERDUE_AFTER)
    late = overdue[:_MANY].count()
    if late:
        oldest = overdue.order_by("scheduled_for").values_list("scheduled_for", flat=True).first()
        behind = in_words(whole_seconds(clock.elapsed(oldest, alias)))
        yield Finding(
            "warning",
            "overdue",
            f"{_count(late)} executions are overdue by more than {limit}, the oldest by {behind}.",
            "Look for live processes on those queues; geneva_list --overdue lists the workflows.",
        )
    stuck = executions.in_progress().filter(process__isnull=True, started_at__lt=now - settings.STUCK_AFTER)
    lost = stuck[:_MANY].count()
    if lost:
        yield Finding(
            "warning",
            "stuck",
            f"{_count(lost)} executions have been in progress in an unknown process for more than {stuck_after}.",
            "Run geneva_housekeeping to recover them.",
        )
    if not late and not lost:
        yield Finding("ok", "rows", f"Nothing is overdue by more than {limit}, and nothing is stuck.")


def _count(count: int) -> str:
    return f"{count}{'+' if count == _MANY else ''}"


def undeclared(alias: str) -> Iterator[Finding]:
    for found in undeclared_in_flight(alias):
        label, step = found.type, found.step
        states = ", ".join(
            f"{found.states[state]} {state}" for state in WorkflowState.values if state in found.states
        )
        if step is None:
            where = f"are of the class {label}"
            hint = (
                "Declare it again, add it to the former_types of the class that replaced it, or cancel them: "
                f"geneva_cancel --type {label} --undeclared."
            )
        else:
            where = f"are at the step {step!r} of {label}"
            hint = (
                f"Leave a gravestone, {step} = removed_step(), or name the step that replaced it: "
                f'formerly=["{step}"]. Or continue them at another step: first geneva_pause those that are ready, '
                f"then geneva_resume_at STEP, each with --type {label} --step {step}."
            )
        message = f"{found.workflows} workflows {where}, which this code does not declare ({states})."
        yield Finding("warning", "undeclared", message, hint)


def failures(alias: str) -> Iterator[Finding]:
    """Count the workflows whose latest attempt failed, among those that were paused last."""
    attempts = StepExecution.objects.using(alias).filter(workflow_id=OuterRef("pk")).latest_first()
    paused = Workflow.objects.using(alias).paused().order_by("-transitioned_at")
    latest = paused.annotate(latest=Subquery(attempts.values("state")[:1])).values("pk", "latest")[:_MANY]
    counts = latest.aggregate(all=Count("pk"), failed=Count("pk", filter=Q(latest=ExecutionState.FAILED)))
    if not counts["failed"]:
        return
    more = "+" if counts["all"] == _MANY else ""
    yield Finding(
        "warning",
        "failures",
        f"{counts['failed']}{more} workflows are paused because a step failed.",
        "geneva_list --state paused lists the errors, and geneva_show ID --errors shows one in full. After fixing the "
        "cause, retry every workflow with this error: geneva_resume --error CLASS.",
    )


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
        f"The column is {real.kind}, and the current models need {wanted}.",
        f"geneva_hero_key says why; geneva_hero_key --to {wanted} --dry-run says whether it can be converted.",
    )


def _settings(_alias: str) -> Iterator[Finding]:
    if settings.STUCK_AFTER < settings.LEASE:
        yield Finding(
            "warning",
            "settings",
            f"STUCK_AFTER ({settings.STUCK_AFTER}) is shorter than LEASE ({settings.LEASE}).",
            "A step without a process would be recovered sooner than one with a dead process. Raise STUCK_AFTER.",
        )
    if settings.LEASE.total_seconds() < 3:
        yield Finding(
            "warning",
            "settings",
            f"LEASE is {settings.LEASE}: after a short pause, a process or its network is presumed dead.",
            "Use ten seconds or more outside of tests.",
        )
    if settings.RETENTION is not None and settings.RETENTION < settings.OVERDUE_AFTER:
        yield Finding(
            "warning",
            "settings",
            f"RETENTION ({settings.RETENTION}) is shorter than OVERDUE_AFTER ({settings.OVERDUE_AFTER}).",
            "History would be deleted before anybody could look at it. Raise RETENTION.",
        )


def _dispatcher(_alias: str) -> Iterator[Finding]:
    dispatcher: Any = configured_dispatcher()
    name = settings.DISPATCHER if isinstance(settings.DISPATCHER, str) else settings.DISPATCHER[0]
    problems = dispatcher.check()
    for problem in problems:
        level = "note"
        if isinstance(problem, Error | Warning):
            level = "error" if isinstance(problem, Error) else "warning"
        yield Finding(level, "dispatcher", f"{name}: {problem.msg}", problem.hint or "")
    if not problems:
        yield Finding("ok", "dispatcher", f"{name}.")


def _processes(alias: str) -> Iterator[Finding]:
    now = clock.now(alias)
    executions = StepExecution.objects.using(alias)
    processes = list(Process.objects.using(alias).order_by("-heartbeat_at")[:1000])
    alive = [each for each in processes if now - clock.utc(each.heartbeat_at) < settings.LEASE]
    dead = len(processes) - len(alive)
    if dead:
        yield Finding(
            "warning",
            "processes",
            f"{dead} have no heartbeat within the lease and are presumed dead.",
            "A worker removes them within half a lease; without a worker, run geneva_housekeeping.",
        )
    if not alive:
        is_due = executions.due(now).exists()
        yield Finding(
            "error" if is_due else "warning",
            "processes",
            "No live process runs steps" + (", and work is due." if is_due else "."),
            "Start geneva_worker, or the workers of the configured dispatcher.",
        )
        return
    hosts = ", ".join(sorted({f"{each.kind} on {each.hostname}" for each in alive}))
    yield Finding("ok", "processes", f"{len(alive)} alive: {hosts}.")
    scheduled = executions.free().skip_scan("queue")
    unserved = [queue for queue in scheduled if not any(each.serves(queue) for each in alive)]
    if unserved:
        yield Finding(
            "error",
            "queues",
            f"Work is scheduled on {', '.join(unserved)}, and no live process serves it.",
            f"Start one: geneva_worker --queues {','.join(unserved)}.",
        )


def _clock(alias: str) -> Iterator[Finding]:
    if connections[alias].vendor == "sqlite":
        return
    clock.measure(connections[alias])
    skew = datetime.fromtimestamp(time.time(), UTC) - clock.now(alias)
    seconds = f"{abs(skew.total_seconds()):.1f} s"
    if abs(skew) <= _SKEW:
        yield Finding("ok", "clock", f"This host and the database agree within {seconds}.")
        return
    yield Finding(
        "note",
        "clock",
        f"This host's clock is {seconds} {'ahead of' if skew > timedelta(0) else 'behind'} the database's.",
        "Workflows use the database's clock, so only the times in this host's logs differ. Check its NTP.",
    )

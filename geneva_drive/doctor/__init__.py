"""Is everything in place? Findings with their remedies, for a person or a deployment script."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from django.core.checks import Error, Warning  # noqa: A004 - Django's own names
from django.db import DatabaseError, connections, router

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.doctor import rows, tables
from geneva_drive.doctor.finding import Finding
from geneva_drive.exceptions import GenevaDriveError
from geneva_drive.housekeeping import buckets
from geneva_drive.lifecycle.dispatch import configured_dispatcher
from geneva_drive.models import columns
from geneva_drive.models.records import Process
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow

__all__ = ["Finding", "examine"]

_SKEW = timedelta(seconds=5)


def examine(using: str | None = None) -> list[Finding]:
    """Look at everything; reads only. A part that cannot be looked at is itself a finding."""
    alias = using or router.db_for_read(Workflow)
    findings: list[Finding] = []
    for look in (
        tables.tables,
        _hero_key,
        _settings,
        _dispatcher,
        _processes,
        _clock,
        rows.rows,
        rows.stranded,
        rows.failures,
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
    scheduled = {queue for _, queue in buckets(alias)}
    return sorted(queue for queue in scheduled if not any(each.serves(queue) for each in alive))


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

"""Prometheus metrics, with the extra ``metrics``.

::

    from geneva_drive import metrics

    metrics.install()

once in a process (in an ``AppConfig.ready()``): then whatever serves ``prometheus_client``'s registry serves
these too. Gauges are counted in the tables when they are asked for; counters and the histogram tell what
this process has done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from django.db import connections, router

from geneva_drive.events import execution_finalized, step_performed, workflow_started
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.figures import Figures, figures

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily
    from prometheus_client.registry import Collector
except ImportError as error:  # pragma: no cover - the extra is not installed
    raise ImportError(
        "geneva_drive.metrics needs prometheus-client: pip install 'geneva_drive[metrics]'."
    ) from error

if TYPE_CHECKING:
    from geneva_drive.models.step_execution import StepExecution

__all__ = ["DURATIONS", "FiguresCollector", "Metrics", "install"]

DURATIONS = (0.005, 0.025, 0.1, 0.25, 1.0, 2.5, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
"""Upper bounds of the histogram's buckets, in seconds: steps take milliseconds or hours."""


class FiguresCollector(Collector):
    """Gauges from the tables, counted anew each time that they are collected.

    Parameters
    ----------
    using
        Alias of the database. Default: what the routers say.
    """

    def __init__(self, using: str | None = None) -> None:
        self.using = using

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Name the gauges, so that registering this asks no database."""
        return _gauges(None)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Count. What a failing database raises passes through: a scrape that fails is seen."""
        alias = self.using or router.db_for_read(Workflow)
        connection = connections[alias]
        mine = connection.connection is None
        try:
            return _gauges(figures(alias))
        finally:
            # Metrics are often served by a thread for each scrape, whose connection nobody else would close.
            if mine and not connection.in_atomic_block:
                connection.close()


_GAUGES: dict[str, tuple[str, Callable[[Figures], float]]] = {
    "geneva_drive_paused_ratio": (
        "Paused workflows among the ongoing ones, from 0 to 1.",
        lambda counted: counted.paused_ratio,
    ),
    "geneva_drive_waiting": (
        "Steps that are waiting for a signal.",
        lambda counted: counted.waiting,
    ),
    "geneva_drive_waiting_too_long": (
        "Steps that have been waiting for longer than WAITING_TOO_LONG.",
        lambda counted: counted.waiting_too_long,
    ),
    "geneva_drive_overdue": (
        "Steps that are due and not begun.",
        lambda counted: counted.overdue,
    ),
    "geneva_drive_oldest_overdue_seconds": (
        "For how long the oldest of them has been due.",
        lambda counted: counted.oldest_overdue.total_seconds(),
    ),
    "geneva_drive_live_processes": (
        "Processes that have beaten within the lease.",
        lambda counted: counted.live_processes,
    ),
}


def _gauges(counted: Figures | None) -> list[GaugeMetricFamily]:
    workflows = GaugeMetricFamily(
        "geneva_drive_workflows", "Workflows by type and state.", labels=["type", "state"]
    )
    by_type = counted.workflows if counted is not None else {}
    for label, states in by_type.items():
        for state, count in states.items():
            workflows.add_metric([label, state], count)
    return [
        workflows,
        *(
            GaugeMetricFamily(name, text, value=None if counted is None else value(counted))
            for name, (text, value) in _GAUGES.items()
        ),
    ]


class Metrics:
    """The gauges, and counters of what this process does. Made by `install`."""

    def __init__(
        self, registry: CollectorRegistry, *, using: str | None = None, durations: Sequence[float] = DURATIONS
    ) -> None:
        self.registry = registry
        self.started = Counter(
            "geneva_drive_workflows_started", "Workflows that were started.", ["type"], registry=registry
        )
        self.steps = Counter(
            "geneva_drive_steps",
            "Step executions that ended, by outcome; 'fenced' when the end came too late.",
            ["type", "step", "outcome"],
            registry=registry,
        )
        self.seconds = Histogram(
            "geneva_drive_step_duration_seconds",
            "How long bodies of steps ran.",
            ["type", "step"],
            buckets=tuple(durations),
            registry=registry,
        )
        self.figures = FiguresCollector(using)
        registry.register(self.figures)
        # Not workflow_transitioned: with a receiver there PostgreSQL would need more statements a step.
        workflow_started.connect(self._on_started)
        execution_finalized.connect(self._on_finalized)
        step_performed.connect(self._on_performed)

    def uninstall(self) -> None:
        """Take everything out again."""
        workflow_started.disconnect(self._on_started)
        execution_finalized.disconnect(self._on_finalized)
        step_performed.disconnect(self._on_performed)
        for collector in (self.started, self.steps, self.seconds, self.figures):
            self.registry.unregister(collector)
        if self in _installed:
            _installed.remove(self)

    def _on_started(self, workflow: Workflow, **_: Any) -> None:
        self.started.labels(workflow.type).inc()

    def _on_finalized(self, workflow: Workflow, execution: StepExecution, fenced: bool, **_: Any) -> None:
        outcome = "fenced" if fenced else str(execution.outcome)
        self.steps.labels(workflow.type, execution.step_name, outcome).inc()

    def _on_performed(self, workflow: Workflow, execution: StepExecution, seconds: float, **_: Any) -> None:
        self.seconds.labels(workflow.type, execution.step_name).observe(seconds)


_installed: list[Metrics] = []
"""Kept here: Django's signals hold their receivers weakly."""


def install(
    registry: CollectorRegistry = REGISTRY,
    *,
    using: str | None = None,
    durations: Sequence[float] = DURATIONS,
) -> Metrics:
    """Register the gauges, the counters and the histogram.

    Parameters
    ----------
    registry
        Where. Default: the one of the process.
    using
        Alias of the database that the gauges are counted in.
    durations
        Upper bounds of the histogram's buckets, in seconds.

    Raises
    ------
    ValueError
        They are registered there already.
    """
    made = Metrics(registry, using=using, durations=durations)
    _installed.append(made)
    return made

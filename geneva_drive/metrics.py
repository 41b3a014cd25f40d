"""Prometheus metrics, with the extra ``metrics``.

Call ``metrics.install()`` once in each process, in an ``AppConfig.ready()``. Whatever serves the registry of
``prometheus_client`` in that process then serves these metrics, too. Gauges are counted in the tables on each scrape;
counters and the histogram measure what this process does.
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
    """Gauges, counted in the tables on each scrape.

    Parameters
    ----------
    using
        Alias of the database. Default: the one that the database routers choose.
    """

    def __init__(self, using: str | None = None) -> None:
        self.using = using

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Name the gauges, so that registering them needs no database."""
        return _gauges(None)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Count. Errors of the database are raised, so that the scrape fails visibly."""
        alias = self.using or router.db_for_read(Workflow)
        connection = connections[alias]
        mine = connection.connection is None
        try:
            return _gauges(figures(alias))
        finally:
            # Often each scrape has its own thread, and nobody else would close its connection.
            if mine and not connection.in_atomic_block:
                connection.close()


_GAUGES: dict[str, tuple[str, Callable[[Figures], float]]] = {
    "geneva_drive_paused_ratio": (
        "Paused workflows among the ongoing ones, from 0 to 1.",
        lambda found: found.paused_ratio,
    ),
    "geneva_drive_waiting": ("Steps that wait for a signal.", lambda found: found.waiting),
    "geneva_drive_waiting_too_long": (
        "Steps that have waited for a signal for longer than WAITING_TOO_LONG.",
        lambda found: found.waiting_too_long,
    ),
    "geneva_drive_overdue": ("Steps that are due and have not started.", lambda found: found.overdue),
    "geneva_drive_oldest_overdue_seconds": (
        "How long the oldest overdue step has been due.",
        lambda found: found.oldest_overdue.total_seconds(),
    ),
    "geneva_drive_live_processes": (
        "Processes with a heartbeat within the lease.",
        lambda found: found.live_processes,
    ),
}


def _gauges(counted: Figures | None) -> list[GaugeMetricFamily]:
    workflows = GaugeMetricFamily(
        "geneva_drive_workflows", "Workflows by type and state.", labels=["type", "state"]
    )
    for label, states in (counted.workflows if counted is not None else {}).items():
        for state, count in states.items():
            workflows.add_metric([label, state], count)
    others = [
        GaugeMetricFamily(name, text, value=None if counted is None else value(counted))
        for name, (text, value) in _GAUGES.items()
    ]
    return [workflows, *others]


class Metrics:
    """The gauges, counters and histogram. `install` makes and registers them."""

    def __init__(
        self, registry: CollectorRegistry, *, using: str | None = None, durations: Sequence[float] = DURATIONS
    ) -> None:
        self.registry = registry
        self.started = Counter(
            "geneva_drive_workflows_started", "Workflows started.", ["type"], registry=registry
        )
        self.steps = Counter(
            "geneva_drive_steps",
            "Step executions that ended, by outcome; 'fenced' if the result came too late.",
            ["type", "step", "outcome"],
            registry=registry,
        )
        self.seconds = Histogram(
            "geneva_drive_step_duration_seconds",
            "Running time of steps.",
            ["type", "step"],
            buckets=tuple(durations),
            registry=registry,
        )
        self.figures = FiguresCollector(using)
        registry.register(self.figures)
        # Not workflow_transitioned: a receiver there would cost PostgreSQL more statements per step.
        workflow_started.connect(self._on_started)
        execution_finalized.connect(self._on_finalized)
        step_performed.connect(self._on_performed)

    def uninstall(self) -> None:
        """Unregister everything."""
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
"""Keeps them alive: Django's signals hold their receivers weakly."""


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
        Default: the default registry of the process.
    using
        Alias of the database of the gauges. Default: the one that the database routers choose.
    durations
        Upper bounds of the histogram's buckets, in seconds.

    Raises
    ------
    ValueError
        They are already registered there.
    """
    made = Metrics(registry, using=using, durations=durations)
    _installed.append(made)
    return made

"""OpenTelemetry: one span per step, in the trace in which the workflow was started.

With the extra ``otel`` and a configured tracer provider, the trace context of ``start()`` is stored in the
``metadata`` of the first execution, under ``trace``, and copied from row to row. Without them nothing is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

try:
    from opentelemetry import propagate, trace
except ImportError:  # pragma: no cover - the extra is not installed
    _INSTALLED = False
else:
    _INSTALLED = True

if TYPE_CHECKING:
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

Note = Callable[[BaseException | None, str | None], None]


def is_on() -> bool:
    """Whether the project traces: the package is installed and a tracer provider is configured."""
    if not _INSTALLED:
        return False
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def current() -> dict[str, str] | None:
    """Return the caller's trace context in serialized form, or None without one."""
    if not is_on():
        return None
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier or None


@contextmanager
def step_span(workflow: Workflow, execution: StepExecution, *, function: str, attempt: int) -> Iterator[Note]:
    """Surround a step with a span. The block calls the yielded function with the step's error and flow control."""
    if not is_on():
        yield lambda *_: None
        return
    carried = execution.trace
    with trace.get_tracer("geneva_drive").start_as_current_span(
        f"{workflow.type}.{execution.step_name}",
        context=propagate.extract(carried) if carried else None,
        kind=trace.SpanKind.CONSUMER,
        attributes=_attributes(workflow, execution, function, attempt),
        # Exceptions are recorded below; flow control is not an error.
        record_exception=False,
        set_status_on_exception=False,
    ) as span:

        def note(error: BaseException | None, word: str | None) -> None:
            if word is not None:
                span.set_attribute("geneva_drive.flow_control", word)
            if error is not None:
                cls = type(error)
                span.set_attribute("error.type", f"{cls.__module__}.{cls.__qualname__}")
                span.record_exception(error)
                span.set_status(trace.StatusCode.ERROR, cls.__name__)

        yield note


def _attributes(workflow: Workflow, execution: StepExecution, function: str, attempt: int) -> dict[str, Any]:
    return {
        # Semantic conventions of messaging systems: a step execution is a message on a queue.
        "messaging.system": "geneva_drive",
        "messaging.operation.name": "perform",
        "messaging.operation.type": "process",
        "messaging.destination.name": execution.queue,
        "messaging.message.id": str(execution.pk),
        "messaging.message.conversation_id": str(execution.workflow_id),
        "code.function.name": function,
        "geneva_drive.workflow.type": workflow.type,
        "geneva_drive.workflow.hero": workflow.hero_label,
        "geneva_drive.step.name": execution.step_name,
        "geneva_drive.step.reattempts": attempt,
    }

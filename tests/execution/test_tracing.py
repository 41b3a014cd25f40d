"""One span per step, in the trace in which the workflow was started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from geneva_drive import ExceptionPolicy, Workflow, step, tracing
from geneva_drive.conf import settings as geneva
from geneva_drive.execution.executor import execute
from geneva_drive.housekeeping import recover
from geneva_drive.testing import assert_state, crash_at, run_next_step, run_to_end, travel
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db

Spans = Callable[[], Sequence[ReadableSpan]]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    """Set a tracer provider; return a function that returns the ended spans, oldest first."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    # The real provider can be set only once in a process.
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return exporter.get_finished_spans


class Traced(Workflow):
    may_proceed_without_hero = True
    fails = False

    class Meta:
        app_label = "testapp"

    @step(queue="mail")
    def first(self) -> None: ...

    @step(on_exception=ExceptionPolicy("reattempt", max_reattempts=1, terminal_action="skip"))
    def second(self) -> None:
        if type(self).fails:
            raise OSError("no answer")

    @step(skip_if=lambda workflow: False)
    def third(self) -> None:
        self.pause(reason="enough")


def start_in_a_trace(**given: Any) -> tuple[Traced, int, int]:
    """Start a workflow inside a span; return it with the ids of the trace and of the span."""
    with trace.get_tracer("shop").start_as_current_span("a request") as span:
        workflow = Traced.start(**given)
    context = span.get_span_context()
    return workflow, context.trace_id, context.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def parent_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


def steps(spans: Spans) -> list[ReadableSpan]:
    return [span for span in spans() if span.name.startswith("testapp.")]


@pytest.mark.parametrize("inline_continuation", [False, True])
def test_each_step_is_a_span_in_the_trace_of_the_start(spans: Spans, inline_continuation: bool) -> None:
    workflow, trace_id, span_id = start_in_a_trace()

    if inline_continuation:
        for row in workflow.executions.all():
            execute(row.pk)
        workflow.refresh_from_db()
        run_to_end(workflow)
    else:
        run_to_end(workflow)

    assert [span.name for span in steps(spans)] == [
        "testapp.Traced.first",
        "testapp.Traced.second",
        "testapp.Traced.third",
    ]
    assert {parent_of(span) for span in steps(spans)} == {(trace_id, span_id)}
    assert {span.kind for span in steps(spans)} == {trace.SpanKind.CONSUMER}


def test_a_span_identifies_its_step(spans: Spans) -> None:
    order = Order.objects.create()
    workflow, _, _ = start_in_a_trace(hero=order)

    run_next_step(workflow)

    (span,) = steps(spans)
    execution = workflow.executions.get(step_name="first")
    assert attributes(span) == {
        "messaging.system": "geneva_drive",
        "messaging.operation.name": "perform",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(execution.pk),
        "messaging.message.conversation_id": str(workflow.pk),
        "code.function.name": f"{__name__}.Traced.first",
        "geneva_drive.workflow.type": "testapp.Traced",
        "geneva_drive.workflow.hero": f"testapp.order {order.pk}",
        "geneva_drive.step.name": "first",
        "geneva_drive.step.reattempts": 0,
    }
    assert span.status.status_code is trace.StatusCode.UNSET


def test_an_exception_is_on_its_span_and_reattempts_stay_in_the_trace(
    spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Traced, "fails", True)
    workflow, trace_id, span_id = start_in_a_trace()

    run_to_end(workflow)

    failed = steps(spans)[1:3]
    assert [attributes(span)["geneva_drive.step.reattempts"] for span in failed] == [0, 1]
    for span in failed:
        assert parent_of(span) == (trace_id, span_id)
        assert span.status.status_code is trace.StatusCode.ERROR
        assert attributes(span)["error.type"] == "builtins.OSError"
        (event,) = span.events
        assert event.name == "exception"
        assert dict(event.attributes or {})["exception.message"] == "no answer"


def test_flow_control_is_not_an_error(spans: Spans) -> None:
    workflow, _, _ = start_in_a_trace()

    run_to_end(workflow)

    last = steps(spans)[-1]
    assert attributes(last)["geneva_drive.flow_control"] == "pause"
    assert last.status.status_code is trace.StatusCode.UNSET
    assert last.events == ()


def test_the_trace_continues_through_a_crash_and_operator_actions(spans: Spans) -> None:
    workflow, trace_id, span_id = start_in_a_trace()
    with crash_at("performed"):
        run_next_step(workflow)
    with travel(geneva.STUCK_AFTER + timedelta(minutes=1)):
        recover("default")
        run_to_end(workflow)
    assert_state(workflow, "paused")
    workflow.resume(by="anna")
    run_to_end(workflow)
    workflow.resume_at("first", by="anna")
    run_next_step(workflow)

    names = [span.name.rsplit(".", 1)[1] for span in steps(spans)]
    assert names == ["first", "first", "second", "third", "third", "first"]
    assert {parent_of(span) for span in steps(spans)} == {(trace_id, span_id)}


def test_start_many_stores_the_trace_too(spans: Spans) -> None:
    with trace.get_tracer("shop").start_as_current_span("an import") as span:
        created, _ = Traced.start_many([Order.objects.create(), Order.objects.create()])

    for workflow in created:
        run_next_step(workflow)

    context = span.get_span_context()
    assert [parent_of(span) for span in steps(spans)] == [(context.trace_id, context.span_id)] * 2


def test_a_workflow_started_outside_a_trace_starts_one_with_each_step(spans: Spans) -> None:
    workflow = run_to_end(Traced.start())

    assert [span.parent for span in steps(spans)] == [None, None, None]
    assert [row.metadata for row in workflow.executions.order_by("pk")][:2] == [None, None]


def test_the_projects_own_metadata_is_left_alone(spans: Spans) -> None:
    workflow, _, _ = start_in_a_trace(metadata={"mine": 1})

    run_next_step(workflow)

    assert workflow.metadata == {"mine": 1}


@pytest.mark.parametrize("configured", ["nothing", "no package"])
def test_without_a_tracer_nothing_is_stored(configured: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if configured == "no package":
        monkeypatch.setattr(tracing, "_INSTALLED", False)
        monkeypatch.delattr(tracing, "trace")
        monkeypatch.delattr(tracing, "propagate")

    assert not tracing.is_on()
    workflow = Traced.start()
    run_to_end(workflow)
    workflow.resume(by="anna")

    assert [row.metadata for row in workflow.executions.order_by("pk")] == [
        None,
        None,
        {"reason": "enough"},
        None,
    ]

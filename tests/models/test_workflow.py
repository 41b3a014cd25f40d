"""The base class Workflow: how instances are displayed, saved, copied and deleted."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import serializers
from django.db import transaction

from geneva_drive import InvalidStateError, StepExecution, Workflow, clock, step
from geneva_drive.models.records import OperatorAction
from geneva_drive.testing import assert_state, run_next_step, run_to_end
from tests.execution.support import Free, active
from tests.testapp.models import Order

pytestmark = pytest.mark.django_db


class Shown(Free):
    @step
    def one(self) -> None:
        pass

    @step
    def two(self) -> None:
        pass


def test_it_is_shown_by_type_key_and_hero() -> None:
    order = Order.objects.create()
    workflow, nobodys = Shown.start(order), Shown.start()

    assert str(workflow) == f"testapp.Shown {workflow.pk} for testapp.order {order.pk}"
    assert str(nobodys) == f"testapp.Shown {nobodys.pk}"
    assert str(Shown()) == "testapp.Shown None"
    assert str(active(workflow)) == "one (scheduled)"


def test_each_timestamp_is_set_by_its_event() -> None:
    workflow: Any = Shown.start()
    assert [workflow.started_at, workflow.transitioned_at] == [None, None]
    assert workflow.created_at == workflow.updated_at

    run_next_step(workflow)
    begun = workflow.started_at
    assert begun is not None
    assert begun >= workflow.created_at
    assert Workflow.objects.filter(transitioned_at=None).exists()

    workflow.pause()
    paused = workflow.transitioned_at
    assert paused is not None
    assert paused >= begun

    workflow.resume()
    run_to_end(workflow)
    assert workflow.started_at == begun
    assert workflow.transitioned_at is not None
    assert workflow.transitioned_at > paused
    assert workflow.updated_at == workflow.transitioned_at


def test_a_save_writes_the_projects_columns_and_updated_at() -> None:
    workflow = Shown.start(metadata={"a": 1})
    before = workflow.updated_at

    workflow.metadata["a"] = 2
    workflow.save(update_fields=["metadata"])

    stored = Workflow.objects.get()
    assert stored.metadata == {"a": 2}
    assert stored.updated_at > before
    assert clock.utc(stored.updated_at) <= clock.now("default")


@pytest.mark.parametrize("value", [None, {}, [], 0, "", False, {"a": None}, [1, 2.5, "x", {"b": []}]])
def test_metadata_is_read_back_equal(value: object) -> None:
    Shown.start(metadata=value)

    stored = Workflow.objects.get().metadata
    assert stored == value
    assert type(stored) is type(value)


def test_a_new_instance_is_always_inserted() -> None:
    first = Shown.start()

    again = Shown(pk=first.pk)
    with pytest.raises(Exception, match=r"(?i)unique|duplicate|primary"), transaction.atomic():
        again.save()

    assert Workflow.objects.count() == 1


def test_deleting_a_row_deletes_its_related_rows() -> None:
    workflow = Shown.start().pause(by="somebody")

    Workflow.objects.get(pk=workflow.pk).delete()

    assert StepExecution.objects.count() == OperatorAction.objects.count() == Workflow.objects.count() == 0


def test_a_fixture_restores_a_row() -> None:
    workflow = Shown.start(Order.objects.create(), metadata={"a": [1, None]})
    text = serializers.serialize("json", [Workflow.objects.get(), active(workflow)])
    Workflow.objects.all().delete()

    for loaded in serializers.deserialize("json", text):
        loaded.save()

    stored = Workflow.objects.get()
    assert (type(stored), stored.pk, stored.metadata) == (Shown, workflow.pk, {"a": [1, None]})
    run_to_end(stored)
    assert_state(stored, "finished")


def test_a_transition_that_is_not_allowed_is_refused() -> None:
    from geneva_drive.events import Pending
    from geneva_drive.lifecycle import transitions
    from geneva_drive.lifecycle.unit_of_work import UnitOfWork
    from geneva_drive.states import MOVES, WorkflowState

    for before in WorkflowState:
        for after in WorkflowState:
            workflow = Shown(state=before, pk=1)
            workflow._state.db = "default"
            now = clock.now("default")
            unit = UnitOfWork("default", workflow, None, Pending(), now, clock.local(now))
            if after == before or after in MOVES[before]:
                transitions.move(unit, after, None)
                assert workflow.state == after
            else:
                with pytest.raises(InvalidStateError, match=f"is {before} and cannot become {after}"):
                    transitions.move(unit, after, None)

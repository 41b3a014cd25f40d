"""Payloads are received as they were sent, on every database."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings

from geneva_drive import Signal
from tests.lifecycle.signals.workflows import Parcel
from tests.serialization.test_round_trips import VALUES, same


@pytest.mark.django_db
@hypothesis_settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(payload=VALUES)
def test_a_payload_is_read_back_equal(payload: Any) -> None:
    workflow = Parcel.start()

    sent = workflow.signal("scanned", payload, idempotency_key="evt")

    # The instance that the sender gets and its matchers saw equals the row.
    assert same(sent.payload, payload)
    assert same(Signal.objects.get(pk=sent.pk).payload, payload)
    assert same(workflow.signal("scanned", None, idempotency_key="evt").payload, payload)


@pytest.mark.django_db
def test_a_model_instance_is_read_back_as_its_current_row() -> None:
    other = Parcel.start()
    signal = Parcel.start().signal("scanned", {"about": other})

    assert Signal.objects.get(pk=signal.pk).payload["about"] == other

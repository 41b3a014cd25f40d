"""The shop's workflows, tested as any project would: no worker, no threads, no waiting."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.test import TestCase

from example_project.shop.carrier import CarrierRefused
from example_project.shop.models import Order
from example_project.shop.workflows import Fulfilment, SalesReport
from geneva_drive.housekeeping import recover
from geneva_drive.testing import assert_state, assert_step, crash_at, run_next_step, run_to_end, travel


def place(**given: Any) -> Order:
    order = {
        "customer": "Ada",
        "email": "ada@example.com",
        "address": "1 Mill Lane",
        "total": Decimal("9.50"),
    }
    return Order.objects.create(**{**order, **given})


class FulfilmentTests(TestCase):
    def test_an_order_is_paid_shipped_and_reviewed(self) -> None:
        workflow = run_to_end(Fulfilment.start(place()))

        assert_state(workflow, "finished")
        assert_step(workflow, "ask_for_review", "completed")
        order = Order.objects.get()
        assert order.paid == order.total
        assert order.tracking

    def test_without_an_email_nobody_is_written_to(self) -> None:
        workflow = run_to_end(Fulfilment.start(place(email="")))

        assert_step(workflow, "confirm", "skipped")
        assert_step(workflow, "ask_for_review", "skipped")
        assert_step(workflow, "ship", "completed")

    def test_a_withdrawn_order_is_not_paid(self) -> None:
        order = place()
        workflow = run_next_step(Fulfilment.start(order))
        Order.objects.update(withdrawn=True)

        run_to_end(workflow)

        assert_state(workflow, "canceled")
        order.refresh_from_db()
        assert order.paid == 0

    def test_shipping_fails_without_an_address_and_goes_on_with_one(self) -> None:
        workflow = Fulfilment.start(place(address=""))
        with self.assertRaises(CarrierRefused):  # noqa: PT027 - the shop needs no pytest
            run_to_end(workflow)
        assert_state(workflow, "paused")

        Order.objects.update(address="1 Mill Lane")
        run_to_end(workflow.resume(by="a test"))

        assert_state(workflow, "finished")

    def test_a_crash_after_the_payment_does_not_charge_twice(self) -> None:
        order = place()
        workflow = run_next_step(Fulfilment.start(order))
        with crash_at("performed"):
            run_next_step(workflow)
        order.refresh_from_db()
        # The step is atomic: its writes went with its completion.
        assert order.paid == 0

        with travel(timedelta(hours=2)):
            recover("default")
            run_to_end(workflow)

        order.refresh_from_db()
        assert order.paid == order.total


class SalesReportTests(TestCase):
    def test_it_counts_what_was_paid(self) -> None:
        place(paid=Decimal("9.50"))
        workflow = run_to_end(SalesReport.start())

        assert workflow.metadata["evening"] == {"orders": 1, "amount": Decimal("9.50")}

"""Tests of the shop's workflows, as in any project: without a worker, threads or waiting."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.test import Client, TestCase

from example_project.shop.carrier import CarrierRefused
from example_project.shop.models import Order, Subscriber
from example_project.shop.views import signature
from example_project.shop.workflows import DAY, Fulfilment, Newsletter, SalesReport
from geneva_drive.housekeeping import recover
from geneva_drive.testing import (
    assert_cursor,
    assert_state,
    assert_step,
    assert_waiting_for,
    crash_at,
    run_due,
    run_iterations,
    run_next_step,
    run_to_end,
    travel,
)


def place(**given: Any) -> Order:
    order = {
        "customer": "Ada",
        "email": "ada@example.com",
        "address": "1 Mill Lane",
        "total": Decimal("9.50"),
    }
    return Order.objects.create(**{**order, **given})


def started(**given: Any) -> Fulfilment:
    """Start a fulfilment whose payment has already arrived."""
    workflow = Fulfilment.start(place(**given))
    workflow.signal("payment", {"amount": workflow.hero.total})
    return workflow


def delivered(workflow: Fulfilment) -> Fulfilment:
    """Run the workflow to its end, with a scan at the doorstep."""
    run_to_end(workflow)
    assert_waiting_for(workflow, "parcel_scanned")
    workflow.signal("parcel_scanned", {"place": "doorstep"})
    return run_to_end(workflow)


class FulfilmentTests(TestCase):
    def test_an_order_is_paid_shipped_delivered_and_reviewed(self) -> None:
        workflow = delivered(started())

        assert_state(workflow, "finished")
        assert_step(workflow, "ask_for_review", "completed")
        order = Order.objects.get()
        assert order.paid == order.total
        assert order.tracking

    def test_without_an_email_no_mail_is_sent(self) -> None:
        workflow = delivered(started(email=""))

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

    def test_shipping_fails_without_an_address_and_continues_with_one(self) -> None:
        workflow = started(address="")
        with self.assertRaises(CarrierRefused):  # noqa: PT027 - the shop needs no pytest
            run_to_end(workflow)
        assert_state(workflow, "paused")

        Order.objects.update(address="1 Mill Lane")
        delivered(workflow.resume(by="a test"))

        assert_state(workflow, "finished")

    def test_a_crash_after_the_payment_does_not_charge_twice(self) -> None:
        workflow = run_next_step(started())
        with crash_at("performed"):
            run_next_step(workflow)
        order = Order.objects.get()
        # The step is atomic: its writes were rolled back together with its completion.
        assert order.paid == 0

        with travel(timedelta(hours=2)):
            recover("default")
            delivered(workflow)

        order.refresh_from_db()
        assert order.paid == order.total

    def test_an_order_that_is_never_paid_is_canceled(self) -> None:
        workflow = run_to_end(Fulfilment.start(place()))
        assert_waiting_for(workflow, "payment")

        with travel(31 * DAY):
            run_due()

        assert_state(workflow, "canceled")

    def test_a_payment_that_is_too_small_is_not_taken(self) -> None:
        workflow = run_to_end(Fulfilment.start(place()))

        workflow.signal("payment", {"amount": Decimal("9.49")})

        assert_waiting_for(workflow, "payment")

    def test_a_parcel_whose_last_scan_is_lost_counts_as_delivered_after_the_timeout(self) -> None:
        workflow = run_to_end(started())
        workflow.signal("parcel_scanned", {"place": "depot"})
        assert_waiting_for(workflow, "parcel_scanned")

        with travel(64 * DAY):
            run_due()

        assert_step(workflow, "deliver", "skipped")
        run_to_end(workflow)
        assert_state(workflow, "finished")


class WebhookTests(TestCase):
    """Requests like those of the bank and the carrier."""

    def setUp(self) -> None:
        self.order = place()
        self.workflow = run_to_end(Fulfilment.start(self.order))
        self.paid = {"id": "evt_1", "order": self.order.pk, "amount": "9.50"}

    def deliver(self, path: str, event: Any, *, signed: str | None = None) -> int:
        body = json.dumps(event).encode()
        given = signature(body) if signed is None else signed
        client = Client(enforce_csrf_checks=True)
        answer = client.post(path, body, content_type="application/json", headers={"X-Signature": given})
        return answer.status_code

    def test_a_payment_reaches_the_workflow_of_its_order(self) -> None:
        assert self.deliver("/webhooks/payment/", self.paid) == 204

        run_to_end(self.workflow)
        self.order.refresh_from_db()
        assert self.order.paid == Decimal("9.50")

    def test_a_payment_that_is_delivered_twice_is_taken_once(self) -> None:
        assert [self.deliver("/webhooks/payment/", self.paid) for _ in range(3)] == [204, 204, 204]

        run_to_end(self.workflow)
        self.order.refresh_from_db()
        assert self.order.paid == Decimal("9.50")
        assert self.workflow.signals.count() == 1

    def test_a_scan_reaches_the_workflow_of_its_parcel(self) -> None:
        self.deliver("/webhooks/payment/", self.paid)
        run_to_end(self.workflow)
        self.order.refresh_from_db()
        scan = {"id": "scan-1", "parcel": self.order.tracking, "place": "depot"}

        assert self.deliver("/webhooks/parcel-scan/", scan) == 204
        assert_waiting_for(self.workflow, "parcel_scanned")
        assert self.deliver("/webhooks/parcel-scan/", {**scan, "id": "scan-2", "place": "doorstep"}) == 204

        run_to_end(self.workflow)
        assert_state(self.workflow, "finished")

    def test_a_request_with_a_wrong_signature_is_refused(self) -> None:
        for forged in ("", "0" * 64, "ü"):
            assert self.deliver("/webhooks/payment/", self.paid, signed=forged) == 403
        assert not self.workflow.signals.exists()

    def test_a_body_that_is_not_an_event_is_refused(self) -> None:
        wrong: dict[str, Any] = {"amount": "much", "order": None, "id": ""}
        events: list[Any] = [[], {}, "paid", {**self.paid, "amount": "NaN"}, {**self.paid, "id": 5}]
        for event in events + [{**self.paid, name: value} for name, value in wrong.items()]:
            assert self.deliver("/webhooks/payment/", event) == 400, event
        assert not self.workflow.signals.exists()

    def test_an_unknown_order_or_parcel_is_not_found(self) -> None:
        assert self.deliver("/webhooks/payment/", {**self.paid, "order": 10**6}) == 404
        # No order has a tracking number yet, and an empty one does not count.
        for parcel in ("0A1B2C", ""):
            scan = {"id": "scan-1", "parcel": parcel, "place": "doorstep"}
            assert self.deliver("/webhooks/parcel-scan/", scan) == 404

    def test_a_payment_for_a_canceled_order_is_gone(self) -> None:
        self.workflow.cancel()

        assert self.deliver("/webhooks/payment/", self.paid) == 410

    def test_they_accept_only_post(self) -> None:
        assert self.client.get("/webhooks/payment/").status_code == 405


class SalesReportTests(TestCase):
    def test_it_counts_payments(self) -> None:
        place(paid=Decimal("9.50"))
        workflow = run_to_end(SalesReport.start())

        assert workflow.metadata["evening"] == {"orders": 1, "amount": Decimal("9.50")}


class NewsletterTests(TestCase):
    def setUp(self) -> None:
        # Create them in another order than that of their addresses, in which the letters are sent.
        Subscriber.objects.bulk_create([Subscriber(email=f"{name}@example.com") for name in "cabed"])

    def test_everybody_gets_one_letter(self) -> None:
        workflow = run_to_end(Newsletter.start())

        assert_state(workflow, "finished")
        assert set(Subscriber.objects.values_list("letters", flat=True)) == {1}
        assert workflow.metadata == {"subscribers": 5}

    def test_nobody_gets_a_second_letter_after_an_interruption(self) -> None:
        workflow = run_iterations(Newsletter.start(), 3)
        assert_cursor(workflow, "c@example.com", iterations=3)

        workflow.pause()
        workflow.resume()
        run_to_end(workflow)

        assert set(Subscriber.objects.values_list("letters", flat=True)) == {1}

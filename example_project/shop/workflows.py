"""The shop's workflows. Like admin.py, this module is discovered by its name."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from django.db.models import Count, F, Sum

from example_project.shop.carrier import book_parcel
from example_project.shop.models import Order, Subscriber
from geneva_drive import (
    Iteration,
    SignalMatcher,
    Workflow,
    cancel_if,
    removed_step,
    resumable_step,
    step,
)

# A day of the shop takes one second, so that the demo is short.
DAY = timedelta(seconds=float(os.environ.get("SHOP_DAY_SECONDS", "1")))


class Fulfilment(Workflow):
    """Take the payment of an order, ship it, and ask the customer for a review."""

    hero: Order
    hero_model = Order

    @cancel_if
    def order_withdrawn(self) -> bool:
        return self.hero.withdrawn

    @step(skip_if="no_email")
    def confirm(self) -> None:
        self.logger.info("To %s: we have your order.", self.hero.email)

    # The shop used to ask a credit agency here. Orders that were at this step when it was removed continue with
    # the payment.
    check_credit = removed_step()

    # The wait gives customers a day to withdraw. Then the step needs the bank's payment signal, which may already have
    # arrived. Because the step is atomic, the amount is added in the transaction that completes the step: exactly
    # once, even after a crash.
    @step(
        wait=DAY,
        wait_for=SignalMatcher("payment", lambda workflow, payload: payload["amount"] >= workflow.hero.total),
        timeout=30 * DAY,
        on_timeout="cancel",
        atomic=True,
    )
    def take_payment(self) -> None:
        amount = self.received_signal.payload["amount"]
        Order.objects.filter(pk=self.hero.pk).update(paid=F("paid") + amount)

    @step
    def pack(self) -> None:
        self.logger.info("%s is packed.", self.hero)

    # Not atomic, because the carrier's booking cannot be rolled back. After a crash the step runs again, and the
    # idempotency key makes the carrier return the first booking. An earlier release called this step send_parcel.
    @step(wait=DAY, formerly=["send_parcel"])
    def ship(self) -> None:
        self.hero.tracking = book_parcel(self.hero.address, idempotency_key=f"order-{self.hero.pk}")
        self.hero.save(update_fields=["tracking"])

    # Parcels are also scanned on the way. If the last scan is lost, the timeout continues with the review.
    @step(
        wait_for=SignalMatcher("parcel_scanned", lambda _, payload: payload["place"] == "doorstep"),
        timeout=60 * DAY,
        on_timeout="skip",
    )
    def deliver(self) -> None:
        self.logger.info("%s has arrived.", self.hero)

    @step(wait=2 * DAY, skip_if="no_email")
    def ask_for_review(self) -> None:
        self.logger.info("To %s: how do you like it?", self.hero.email)

    def no_email(self) -> bool:
        return not self.hero.email


class SalesReport(Workflow):
    """Count the sales at noon and again in the evening. This workflow has no hero."""

    may_proceed_without_hero = True
    job_options = {"queue": "reports", "priority": 10}

    @step
    def count_at_noon(self) -> None:
        self._note("noon")

    @step(wait=DAY)
    def count_in_the_evening(self) -> None:
        self._note("evening")

    def _note(self, when: str) -> None:
        sales: dict[str, Any] = Order.objects.filter(paid__gt=0).aggregate(
            orders=Count("pk"), amount=Sum("paid")
        )
        # `metadata` is for the project to use. A Decimal is read back as a Decimal.
        self.metadata = {**(self.metadata or {}), when: sales}
        self.save(update_fields=["metadata"])


class Newsletter(Workflow):
    """Send a letter to every subscriber. If the worker stops, the loop continues where it was."""

    may_proceed_without_hero = True
    job_options = {"priority": 10}

    # The loop yields every second, so that orders do not have to wait for thousands of letters. If the worker is
    # killed, the letters since the last checkpoint are sent again: 25 at most.
    @resumable_step(max_runtime=timedelta(seconds=1), checkpoint_every=25)
    def send(self, iteration: Iteration) -> None:
        for subscriber in iteration.iterate_queryset(Subscriber.objects.all(), total=True):
            self.send_letter(subscriber)

    @step
    def count(self) -> None:
        self.metadata = {"subscribers": Subscriber.objects.count()}
        self.save(update_fields=["metadata"])

    def send_letter(self, subscriber: Subscriber) -> None:
        Subscriber.objects.filter(pk=subscriber.pk).update(letters=F("letters") + 1)

"""The shop's workflows. The module is found by its name, like admin.py."""

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

# The shop is in a hurry.
DAY = timedelta(seconds=float(os.environ.get("SHOP_DAY_SECONDS", "1")))


class Fulfilment(Workflow):
    """From an order to a customer who is asked for a review."""

    hero: Order
    hero_model = Order

    @cancel_if
    def order_withdrawn(self) -> bool:
        return self.hero.withdrawn

    @step(skip_if="no_email")
    def confirm(self) -> None:
        self.logger.info("To %s: we have your order.", self.hero.email)

    # The shop used to ask a credit agency here. Orders that were about to be checked when that was given
    # up go on to the payment.
    check_credit = removed_step()

    # Customers may withdraw for a day, hence the wait. Then the bank has to have told the payment, which it may
    # do before. Atomic: the amount is added in the transaction that completes the step, so exactly once,
    # whatever crashes.
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

    # Not atomic: what the carrier does cannot be rolled back. After a crash the step runs again, and the
    # key makes the second booking the same as the first. It was once called send_parcel.
    @step(wait=DAY, formerly=["send_parcel"])
    def ship(self) -> None:
        self.hero.tracking = book_parcel(self.hero.address, idempotency_key=f"order-{self.hero.pk}")
        self.hero.save(update_fields=["tracking"])

    # Parcels are scanned on their way as well. When the last scan is lost, the review is asked for in the end.
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
    """Counts once, waits for the end of the day, counts again. It runs for nobody in particular."""

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
        # `metadata` is the project's own, and a Decimal comes back as a Decimal.
        self.metadata = {**(self.metadata or {}), when: sales}
        self.save(update_fields=["metadata"])


class Newsletter(Workflow):
    """A letter to every subscriber. It goes on where it was, whatever happens to the worker."""

    may_proceed_without_hero = True
    job_options = {"priority": 10}

    # Every second it gives way, so that no order has to wait for thousands of letters. A worker that is killed
    # would send the letters since the last checkpoint again, 25 at most.
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

"""The orders of the demo: what is special about each, and how its workflow must end."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.db.models import Sum

from example_project.shop.models import Order, Subscriber
from example_project.shop.workflows import Fulfilment
from geneva_drive import StepExecution, Workflow

__all__ = ["STORIES", "Timeline", "begin", "letters_sent", "subscribe"]

REGULAR = ["confirm completed", "take_payment completed", "pack completed", "ship completed"]
DELIVERED = [*REGULAR, "deliver completed"]
REVIEWED = [*DELIVERED, "ask_for_review completed"]


@dataclass(frozen=True)
class Timeline:
    """One order.

    Attributes
    ----------
    description
        What is special about the order.
    expected
        The steps and the states in which they end, in order. None if that depends on the speed of the machine.
    ends
        The state in which the workflow ends.
    order
        Field values of the order that differ from the defaults.
    standing_at
        The step at which the workflow stands when the demo starts, as if an older release had written the rows.
    """

    customer: str
    description: str
    expected: list[str] | None
    ends: str = "finished"
    order: dict[str, Any] = field(default_factory=dict)
    standing_at: str | None = None


STORIES = [
    Timeline("Ada", "a regular order", REVIEWED),
    Timeline("Bela", "has no email, so two steps are skipped",
          ["confirm skipped", *DELIVERED[1:], "ask_for_review skipped"], order={"email": ""}),
    Timeline("Chidi", "withdrew before anything happened", ["confirm canceled"], "canceled",
          order={"withdrawn": True}),
    Timeline("Dora", "withdraws while it waits", None, "canceled"),
    Timeline("Emre", "has no address: shipping fails, and somebody must help",
          [*REGULAR[:3], "ship failed", *REVIEWED[3:]], order={"address": ""}),
    Timeline("Fatima", "was at check_credit when that step was removed",
          ["check_credit skipped", *REVIEWED[1:]], standing_at="check_credit"),
    Timeline("Goran", "was at send_parcel when that step was renamed",
          ["send_parcel completed", *REVIEWED[4:]], order={"paid": Decimal("70.00")},
          standing_at="send_parcel"),
    Timeline("Hana", "a regular order", REVIEWED),
]  # fmt: skip


def begin() -> dict[Fulfilment, Timeline]:
    """Create the orders and start their workflows."""
    started = {}
    for number, timeline in enumerate(STORIES, start=1):
        given = {
            "email": f"{timeline.customer.lower()}@example.com",
            "address": f"{number} Mill Lane",
            "total": Decimal(10 * number),
            **timeline.order,
        }
        order = Order.objects.create(customer=timeline.customer, **given)
        workflow = Fulfilment.start(order)
        if timeline.standing_at is not None:
            _as_an_older_release_left_it(workflow, timeline.standing_at)
        started[workflow] = timeline
    return started


def _as_an_older_release_left_it(workflow: Fulfilment, step_name: str) -> None:
    """Set the step name directly in the rows. After a deploy, old rows look like that to new code."""
    StepExecution.objects.filter(workflow=workflow, state="scheduled").update(step_name=step_name)
    Workflow.objects.filter(pk=workflow.pk).update(next_step_name=step_name)


def subscribe(count: int) -> int:
    """Ensure that there are ``count`` subscribers. Return how many letters they have already received."""
    Subscriber.objects.bulk_create(
        [Subscriber(email=f"reader-{number}@example.com") for number in range(count)],
        ignore_conflicts=True,
        batch_size=1000,
    )
    return letters_sent()


def letters_sent() -> int:
    """Return how many letters all subscribers have received together."""
    found: int | None = Subscriber.objects.aggregate(letters=Sum("letters"))["letters"]
    return found or 0

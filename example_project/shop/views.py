"""Webhooks: the bank calls one when an order is paid, the carrier calls one when a parcel is scanned.

Both views verify the sender, look up the workflow, send a signal with the event's id as the idempotency key, and
only then respond. A sender that gets no response sends the event again, and the key makes that harmless.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from decimal import Decimal
from functools import wraps
from typing import Any, NamedTuple

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from example_project.shop.models import Order
from example_project.shop.workflows import Fulfilment
from geneva_drive import InvalidSignalError, PayloadError, WorkflowNotOngoing

__all__ = ["parcel_scan", "payment", "signature"]


def signature(body: bytes) -> str:
    """Return the signature of a request body: HMAC-SHA256 with the shared secret, in hex."""
    secret: str = settings.SHOP_WEBHOOK_SECRET  # type: ignore[misc]  # types are read from other settings
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Event(NamedTuple):
    """An event and the order that it is about, as a signal."""

    order: Order | None
    name: str
    payload: dict[str, Any]
    key: str


def webhook(read: Callable[[dict[str, Any]], Event]) -> Callable[[HttpRequest], HttpResponse]:
    """Turn a function that reads an event into a view.

    The view responds with 204 when the signal was sent, and with 403 if the signature is wrong, 400 if the body is not
    a valid event, 404 if there is no such order, parcel or workflow, and 410 if the workflow has ended, so that the
    sender does not try again.
    """

    @csrf_exempt
    @require_POST
    @wraps(read)
    def view(request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Signature", "")
        # Compare bytes, because a header can contain any character, and in constant time, against timing attacks.
        if not hmac.compare_digest(signature(request.body).encode(), given.encode()):
            return HttpResponse(status=403)
        try:
            event = read(json.loads(request.body))
        except (ValueError, TypeError, KeyError, ArithmeticError):
            return HttpResponse(status=400)
        return HttpResponse(status=_send(event))

    return view


@webhook
def payment(event: dict[str, Any]) -> Event:
    """Read ``{"id": "evt_1", "order": 42, "amount": "9.50"}`` from the bank."""
    order = Order.objects.filter(pk=int(event["order"])).first()
    return Event(order, "payment", {"amount": Decimal(event["amount"])}, event["id"])


@webhook
def parcel_scan(event: dict[str, Any]) -> Event:
    """Read ``{"id": "scan-7", "parcel": "0A1B2C", "place": "doorstep"}`` from the carrier."""
    order = Order.objects.filter(tracking=str(event["parcel"])).exclude(tracking="").first()
    return Event(order, "parcel_scanned", {"place": str(event["place"])}, event["id"])


def _send(event: Event) -> int:
    """Send the signal to the order's latest workflow. Return the HTTP status for the response."""
    if event.order is None:
        return 404
    workflow = Fulfilment.objects.for_hero(event.order).order_by("-pk").first()
    if workflow is None:
        return 404
    try:
        workflow.signal(event.name, event.payload, idempotency_key=event.key)
    except WorkflowNotOngoing:
        return 410
    except (InvalidSignalError, PayloadError):
        return 400
    return 204

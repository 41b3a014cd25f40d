"""What the outside world calls: the bank when an order is paid, the carrier when a parcel is scanned.

Both views do the same four things: verify who speaks, look the workflow up, signal with the event's id as the
key, and answer only then. A sender that gets no answer sends again, and the key makes that harmless.
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
    """Sign a request's body, as its sender does: HMAC-SHA256 with the secret that both know, in hex."""
    secret: str = settings.SHOP_WEBHOOK_SECRET  # type: ignore[misc]  # types are read from other settings
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Told(NamedTuple):
    """What an event says, and to whom."""

    order: Order | None
    name: str
    payload: dict[str, Any]
    key: str


def webhook(read: Callable[[dict[str, Any]], Told]) -> Callable[[HttpRequest], HttpResponse]:
    """Make a view of a function that reads an event.

    403: it is not signed; 400: it is no event; 404: nobody waits for it; 410: who did has ended, so it need not
    be sent again.
    """

    @csrf_exempt
    @require_POST
    @wraps(read)
    def view(request: HttpRequest) -> HttpResponse:
        given = request.headers.get("X-Signature", "")
        # Bytes, for a header may hold anything; and in constant time, so that it cannot be guessed bit by bit.
        if not hmac.compare_digest(signature(request.body).encode(), given.encode()):
            return HttpResponse(status=403)
        try:
            told = read(json.loads(request.body))
        except (ValueError, TypeError, KeyError, ArithmeticError):
            return HttpResponse(status=400)
        return HttpResponse(status=_tell(told))

    return view


@webhook
def payment(event: dict[str, Any]) -> Told:
    """Take ``{"id": "evt_1", "order": 42, "amount": "9.50"}`` from the bank."""
    order = Order.objects.filter(pk=int(event["order"])).first()
    return Told(order, "payment", {"amount": Decimal(event["amount"])}, event["id"])


@webhook
def parcel_scan(event: dict[str, Any]) -> Told:
    """Take ``{"id": "scan-7", "parcel": "0A1B2C", "place": "doorstep"}`` from the carrier."""
    order = Order.objects.filter(tracking=str(event["parcel"])).exclude(tracking="").first()
    return Told(order, "parcel_scanned", {"place": str(event["place"])}, event["id"])


def _tell(told: Told) -> int:
    """Signal the order's latest workflow; return the status to answer with."""
    if told.order is None:
        return 404
    workflow = Fulfilment.objects.for_hero(told.order).order_by("-pk").first()
    if workflow is None:
        return 404
    try:
        workflow.signal(told.name, told.payload, idempotency_key=told.key)
    except WorkflowNotOngoing:
        return 410
    except (InvalidSignalError, PayloadError):
        return 400
    return 204

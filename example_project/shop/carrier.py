"""Stands for a parcel service somewhere on the internet."""

from __future__ import annotations

import hashlib

__all__ = ["CarrierRefused", "book_parcel"]


class CarrierRefused(Exception):
    """The carrier does not take the parcel."""


def book_parcel(address: str, *, idempotency_key: str) -> str:
    """Book a parcel and return its tracking number; the same key gives the same parcel again."""
    if not address:
        raise CarrierRefused("A parcel needs an address.")
    return hashlib.sha256(idempotency_key.encode()).hexdigest()[:10].upper()

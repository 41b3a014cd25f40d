"""A fake client for the API of a parcel service."""

from __future__ import annotations

import hashlib

__all__ = ["CarrierRefused", "book_parcel"]


class CarrierRefused(Exception):
    """The carrier refused the parcel."""


def book_parcel(address: str, *, idempotency_key: str) -> str:
    """Book a parcel and return its tracking number. The same key returns the same parcel again."""
    if not address:
        raise CarrierRefused("A parcel needs an address.")
    return hashlib.sha256(idempotency_key.encode()).hexdigest()[:10].upper()

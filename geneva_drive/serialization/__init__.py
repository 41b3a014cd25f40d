"""Conversion of payloads, cursors and metadata to JSON and back to equal values.

JSON's own types are stored as they are. The others are objects with one key, which begins with ``$``::

    {"$datetime": "2024-10-27T02:30:00+01:00[Europe/Amsterdam]"}   {"$date": "2024-10-27"}
    {"$timedelta": [1, 30, 0]}   {"$decimal": "1.50"}   {"$uuid": "…"}   {"$tuple": [1, 2]}
    {"$model": ["shop.order", 42]}   {"$float": "1e+22"}   {"$dict": {"$uuid": "not one of ours"}}

The last one wraps a dict that looks like one of these. A value that a database could not store, or would not
return equal, is refused before anything is written.
"""

from __future__ import annotations

from geneva_drive.serialization.decoding import decode, loads
from geneva_drive.serialization.encoding import MAX_DEPTH, MAX_KEY_BYTES, dumps, encode, has_tags, to_text
from geneva_drive.serialization.standins import ModelReference, Unreadable, find_unreadable

__all__ = [
    "MAX_DEPTH",
    "MAX_KEY_BYTES",
    "ModelReference",
    "Unreadable",
    "decode",
    "dumps",
    "encode",
    "find_unreadable",
    "has_tags",
    "loads",
    "to_text",
]

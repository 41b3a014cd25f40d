"""A language of our own, to see that texts are translated: a catalog as ``msgfmt`` would compile it."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

__all__ = ["write_catalog"]

_MAGIC = 0x950412DE
_HEADER = "Content-Type: text/plain; charset=UTF-8\n"


def write_catalog(folder: Path, language: str, messages: Mapping[str, str]) -> None:
    """Write ``folder`` so that it can stand in ``LOCALE_PATHS``."""
    pairs = [(key.encode(), value.encode()) for key, value in sorted({"": _HEADER, **messages}.items())]
    # A header of seven words, then two tables of (length, offset), then the texts, each ended by a zero.
    keys_at, values_at = 28, 28 + 8 * len(pairs)
    offset = values_at + 8 * len(pairs)
    tables, texts = b"", b""
    for column in (0, 1):
        for pair in pairs:
            tables += struct.pack("<II", len(pair[column]), offset + len(texts))
            texts += pair[column] + b"\0"
    target = folder / language / "LC_MESSAGES"
    target.mkdir(parents=True)
    header = struct.pack("<7I", _MAGIC, 0, len(pairs), keys_at, values_at, 0, 0)
    (target / "django.mo").write_bytes(header + tables + texts)

"""The settings: one dict, ``GENEVA_DRIVE``, read each time, so that ``override_settings`` works.

Durations are timedeltas. Unknown keys and wrong types are refused by a system check.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings as django_settings

__all__ = ["DEFAULTS", "Settings", "settings"]


class Settings:
    """Typed access to the dict. Every attribute is a key of ``GENEVA_DRIVE``."""

    #: What carries "execution 42 is due": a dotted path, or ``(path, options)``.
    DISPATCHER: str | tuple[str, dict[str, Any]] = "geneva_drive.dispatchers.Worker"
    #: The column type of the hero's key: "auto", "bigint", "uuid" or "string".
    HERO_KEY_TYPE: str = "auto"
    #: The key type of our own tables: "bigint" or "uuid". Read at import.
    KEY_TYPE: str = "bigint"
    #: The queue of steps that name none.
    DEFAULT_QUEUE: str = "default"
    #: Go on with the next due step in the same process.
    INLINE_CONTINUATION: bool = True
    #: How long an execution that this code does not know is deferred. Zero: paused at once.
    UNDEFINED_STEP_GRACE: timedelta = timedelta(minutes=5)
    #: A process without a heartbeat for so long is dead. It beats every third of it.
    LEASE: timedelta = timedelta(seconds=30)
    #: In progress without a known process for so long is stuck.
    STUCK_AFTER: timedelta = timedelta(hours=1)
    #: Scheduled and overdue for so long is dispatched again.
    OVERDUE_AFTER: timedelta = timedelta(minutes=15)
    #: What recovery does: "reattempt", "pause" or "cancel". A step's own ``on_crash`` wins.
    RECOVERY_ACTION: str = "reattempt"
    #: Consecutive crashes of one step before the workflow pauses.
    MAX_CRASHES: int = 3
    #: How long finished and canceled workflows are kept. None keeps them.
    RETENTION: timedelta | None = timedelta(days=30)
    #: Workflows that one transaction of the clean-up deletes.
    CLEANUP_BATCH_SIZE: int = 1000
    #: Bytes of the stored JSON of a payload. None: no limit.
    MAX_PAYLOAD_BYTES: int | None = 131072
    #: Bytes of the stored JSON of a cursor. None: no limit.
    MAX_CURSOR_BYTES: int | None = 131072
    #: When a waiting step counts as waiting too long.
    WAITING_TOO_LONG: timedelta = timedelta(days=7)
    #: Characters kept of an error's message and of its traceback, each.
    MAX_ERROR_CHARACTERS: int = 20000

    def __getattribute__(self, name: str) -> Any:
        if name.isupper():
            given: Mapping[str, Any] = getattr(django_settings, "GENEVA_DRIVE", None) or {}
            if name in given:
                return given[name]
        return super().__getattribute__(name)


DEFAULTS: dict[str, Any] = {name: value for name, value in vars(Settings).items() if name.isupper()}

settings = Settings()

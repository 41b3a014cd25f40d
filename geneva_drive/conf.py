"""The settings: one dict, ``GENEVA_DRIVE``, read at each access, so that ``override_settings`` works.

Durations are timedeltas. A system check reports unknown keys and wrong types.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings as django_settings

__all__ = ["DEFAULTS", "Settings", "settings"]


class Settings:
    """Typed access to the dict. Every attribute is a key of ``GENEVA_DRIVE``."""

    #: The class that tells a process "execution 42 is due": a dotted path, or ``(path, options)``.
    DISPATCHER: str | tuple[str, dict[str, Any]] = "geneva_drive.dispatchers.Worker"
    #: The column type of the hero's key: "auto", "bigint", "uuid" or "string".
    HERO_KEY_TYPE: str = "auto"
    #: The key type of this package's tables: "bigint" or "uuid". Read at import.
    KEY_TYPE: str = "bigint"
    #: The queue of steps without one.
    DEFAULT_QUEUE: str = "default"
    #: Continue with the next due step in the same process.
    INLINE_CONTINUATION: bool = True
    #: How long an execution of an undeclared step is deferred before the workflow pauses. Zero: not at all.
    UNDEFINED_STEP_GRACE: timedelta = timedelta(minutes=5)
    #: A process without a heartbeat for this long is presumed dead. Heartbeats are three times as frequent.
    LEASE: timedelta = timedelta(seconds=30)
    #: An execution in progress without a process for this long is stuck.
    STUCK_AFTER: timedelta = timedelta(hours=1)
    #: An execution that is overdue for this long is dispatched again.
    OVERDUE_AFTER: timedelta = timedelta(minutes=15)
    #: What recovery does: "reattempt", "pause" or "cancel". A step's own ``on_crash`` wins.
    RECOVERY_ACTION: str = "reattempt"
    #: Consecutive crashes of one step before the workflow pauses.
    MAX_CRASHES: int = 3
    #: How long finished and canceled workflows are kept. None: forever.
    RETENTION: timedelta | None = timedelta(days=30)
    #: Workflows that the clean-up deletes in one transaction.
    CLEANUP_BATCH_SIZE: int = 1000
    #: The most bytes of a payload as JSON. None: no limit.
    MAX_PAYLOAD_BYTES: int | None = 131072
    #: The most bytes of a cursor as JSON. None: no limit.
    MAX_CURSOR_BYTES: int | None = 131072
    #: After this long a waiting step is reported as waiting too long.
    WAITING_TOO_LONG: timedelta = timedelta(days=7)
    #: The most characters stored of an error's message and of its traceback, each.
    MAX_ERROR_CHARACTERS: int = 20000

    def __getattribute__(self, name: str) -> Any:
        if name.isupper():
            given: Mapping[str, Any] = getattr(django_settings, "GENEVA_DRIVE", None) or {}
            if name in given:
                return given[name]
        return super().__getattribute__(name)


DEFAULTS: dict[str, Any] = {name: value for name, value in vars(Settings).items() if name.isupper()}

settings = Settings()

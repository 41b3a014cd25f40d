"""A dispatcher that notes what it is told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from geneva_drive.dispatchers import Dispatcher

__all__ = ["Recording"]


class Recording(Dispatcher):
    """Carries nothing; can be told to fail, and to do something when it is told of an execution."""

    supports_delays = True
    supports_queues = True

    told: ClassVar[list[tuple[Any, dict[str, Any]]]] = []
    failing: ClassVar[bool] = False
    inside: ClassVar[bool] = False
    meanwhile: ClassVar[Callable[[Any], None] | None] = None

    def __init__(self, *, lookahead: timedelta | None = timedelta(minutes=2), **options: Any) -> None:
        super().__init__(lookahead=lookahead, **options)

    @classmethod
    def reset(cls) -> None:
        """Forget what a test before this one told it."""
        cls.told.clear()
        cls.failing = cls.inside = False
        cls.meanwhile = None

    def enqueues_inside(self, using: str) -> bool:
        return self.inside

    def enqueue(self, execution_id: Any, options: dict[str, Any]) -> str | None:
        if self.failing:
            raise ConnectionError("nobody answers")
        self.told.append((execution_id, options))
        if self.meanwhile is not None:
            type(self).meanwhile(execution_id)  # type: ignore[misc]
        return f"job-{len(self.told)}"

"""The counts that housekeeping reports."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class Counts:
    """Rows that each chore moved or deleted."""

    recovered: int = 0
    fed: int = 0
    redispatched: int = 0
    woken: int = 0
    expired: int = 0
    processes: int = 0
    workflows: int = 0
    executions: int = 0
    signals: int = 0
    operator_actions: int = 0
    protected: int = 0

    def as_dict(self) -> dict[str, int]:
        return asdict(self)

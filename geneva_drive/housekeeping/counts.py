"""What a pass did, in rows."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class Counts:
    """Rows that one pass dealt with."""

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

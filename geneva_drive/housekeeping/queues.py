"""Where something is scheduled: queues and priorities, without looking at every row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from geneva_drive.models.step_execution import StepExecution


def buckets(using: str, queues: list[str] | None = None) -> list[tuple[int, str]]:
    """Return the (priority, queue) pairs that have something scheduled, most urgent first.

    Found by going from one to the next through the index of what is due, so that it costs two look-ups a
    pair, however many rows there are.
    """
    rows = StepExecution.objects.using(using).free()
    found: list[tuple[int, str]] = []
    for queue in queues if queues is not None else _each(rows, "queue"):
        found.extend((priority, queue) for priority in _each(rows.filter(queue=queue), "priority"))
    return sorted(found)


def _each(rows: Any, column: str) -> Iterator[Any]:
    value = rows.order_by(column).values_list(column, flat=True).first()
    while value is not None:
        yield value
        value = (
            rows.filter(**{f"{column}__gt": value}).order_by(column).values_list(column, flat=True).first()
        )

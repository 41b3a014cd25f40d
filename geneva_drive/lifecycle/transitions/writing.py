"""Changing a row in memory, and writing what was changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from geneva_drive.lifecycle.locking import alias_of

if TYPE_CHECKING:
    from geneva_drive.models.records import Signal
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

__all__ = ["change", "flush"]


def change(row: Workflow | StepExecution | Signal, **values: Any) -> None:
    """Set columns in memory, to be written by the next ``flush``."""
    dirty: set[str] = row.__dict__.setdefault("_dirty", set())
    for name, value in values.items():
        setattr(row, name, value)
        dirty.add(name)


def flush(row: Workflow | StepExecution | Signal) -> None:
    """Write what was changed: an INSERT for a new row, an UPDATE of the changed columns otherwise."""
    dirty: set[str] = row.__dict__.pop("_dirty", set())
    if row._state.adding:
        row.save(force_insert=True, using=row._state.db)
    elif dirty:
        type(row)._base_manager.using(alias_of(row)).filter(pk=row.pk).update(
            **{name: getattr(row, name) for name in dirty}
        )

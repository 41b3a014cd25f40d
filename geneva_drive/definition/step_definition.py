"""What is known of one step once its class is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from geneva_drive.definition.blueprint import Location
from geneva_drive.definition.conditions import Condition
from geneva_drive.definition.matchers import Matcher
from geneva_drive.definition.policies import Policy

__all__ = ["OnCrash", "OnTimeout", "StepDefinition"]

OnCrash = Literal["reattempt", "pause", "cancel"]
OnTimeout = Literal["skip", "cancel", "pause"]


@dataclass(frozen=True, slots=True)
class StepDefinition:
    """One step of a workflow class, checked.

    Attributes
    ----------
    name
        What rows remember.
    function
        The attribute of the workflow that is called. It is looked up on the instance, so that a subclass
        may redefine the plain method and keep the rest. None for a gravestone.
    wait
        The time from scheduling to due, from zero.
    skip_if
        The step is passed over when this holds. ``run_if`` is kept here, negated. None: never.
    wait_for
        What says which signals the step needs one of. None: it needs none.
    timeout
        How long it may stand parked for its signal. None: as long as it takes.
    on_timeout
        What follows then. None: what the policies say of a ``SignalWaitTimeout``, else a pause.
    atomic
        Whether body and completion share one transaction.
    before, after
        The step that this one was placed next to, as it was written.
    formerly
        Older names of this step, which rows may still have.
    queue, priority
        None when the step leaves them to the workflow and the settings.
    options
        The job options that the step itself gives, for `options.merge`: queue, priority, wait.
    on_crash
        What recovery does with it. None: what the setting says.
    policies
        What `on_exception` says, in its order.
    removed
        A gravestone.
    resumable
        Whether the body receives an iteration with a cursor.
    max_iterations, max_runtime
        After so many items, or so long, one execution gives way to the next. None: no limit.
    checkpoint_every
        The cursor is written after so many items, or when it was last written so long ago.
    location
        The file and line that declare it.
    """

    name: str
    function: str | None = None
    wait: timedelta = timedelta(0)
    skip_if: Condition | None = None
    wait_for: Matcher | None = field(default=None, hash=False)
    timeout: timedelta | None = None
    on_timeout: OnTimeout | None = None
    atomic: bool = False
    before: str | None = None
    after: str | None = None
    formerly: tuple[str, ...] = ()
    queue: str | None = None
    priority: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    on_crash: OnCrash | None = None
    policies: tuple[Policy, ...] = ()
    removed: bool = False
    is_async: bool = False
    resumable: bool = False
    max_iterations: int | None = None
    max_runtime: timedelta | None = None
    checkpoint_every: int | timedelta = 1
    location: Location | None = None

    @property
    def is_removed(self) -> bool:
        return self.removed

    @property
    def is_runnable(self) -> bool:
        return not self.removed

    @property
    def conditional(self) -> bool:
        """Whether something has to be asked before the step can run."""
        return self.skip_if is not None or self.wait_for is not None

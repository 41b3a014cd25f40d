"""Perform a step: run its body with its hooks, and return how it ended."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn
from uuid import UUID

from asgiref.sync import async_to_sync, iscoroutinefunction
from django.db import connections

from geneva_drive import tracing
from geneva_drive.definition import flow
from geneva_drive.definition.collection import StepDefinition
from geneva_drive.events import step_performed
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.execution.cursor import Cursor
from geneva_drive.execution.iteration import Iteration
from geneva_drive.execution.runner import Runner
from geneva_drive.logs import StepLogger, about
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow

logger = logging.getLogger("geneva_drive.step")


@dataclass(slots=True)
class ClaimedExecution:
    """An execution in progress, with the instance that its body receives.

    Attributes
    ----------
    token
        What makes it ours.
    error
        What a precondition raised, in which case there is no body to run.
    row
        The workflow's columns as they were claimed: what a body sets on its instance must not reach the next one.
    reattempts
        How many reattempts by policy, in a row, led to this attempt.
    reported, raised
        What to log, and what the runner gets to see, after the commit; None for nothing.
    """

    workflow: Workflow
    execution: StepExecution
    definition: StepDefinition | None
    token: UUID
    error: BaseException | None = None
    row: dict[str, Any] = field(default_factory=dict)
    reattempts: int = field(init=False)
    trace: dict[str, str] | None = field(init=False)
    reported: BaseException | None = None
    raised: BaseException | None = None

    def __post_init__(self) -> None:
        # As the row had it when it was begun: a body may write metadata of its own there.
        self.reattempts = self.execution.reattempts
        self.trace = self.execution.trace

    def as_claimed(self) -> Workflow:
        """Return another instance, as the row was when it was claimed."""
        cls = type(self.workflow)
        return cls.from_db(self.execution._state.db, list(self.row), list(self.row.values()))


def row_of(workflow: Workflow) -> dict[str, Any]:
    """Return the loaded columns of a workflow."""
    names = [each.attname for each in workflow._meta.concrete_fields]
    return {name: workflow.__dict__[name] for name in names if name in workflow.__dict__}


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a body ended: by itself (both None), by flow control, or by an exception."""

    control: flow.FlowControl | None = None
    error: BaseException | None = None


_CONTROLS: dict[str, type[flow.FlowControl]] = {
    "cancel": flow.Cancel,
    "finish": flow.Finish,
    "pause": flow.Pause,
    "reattempt": flow.Reattempt,
    "skip": flow.Skip,
    "suspend": flow.Suspend,
}


class StepContext:
    """What the instance knows while its body, a hook or a handler runs, and how it leaves early."""

    only_reads = False

    def __init__(self, claimed: ClaimedExecution, *, resumable: bool = True) -> None:
        self.execution = claimed.execution
        self.in_body = False
        self._workflow = claimed.workflow
        self._resumable = resumable and claimed.definition is not None and claimed.definition.resumable
        self._outer_blocks: dict[str, int] = {}

    def enter_body(self) -> None:
        """From here on flow control is allowed, outside of blocks that are opened after this."""
        self._outer_blocks = _open_blocks()
        self.in_body = True

    @cached_property
    def logger(self) -> logging.LoggerAdapter[Any]:
        return StepLogger(logger, about(self._workflow, self.execution))

    def leave(self, how: str, **arguments: Any) -> NoReturn:
        self.check_outside_of_blocks(how)
        if how == "suspend" and not self._resumable:
            raise InvalidStateError(f"{self.where}: suspend() is for resumable steps. Use reattempt(wait=…).")
        raise _CONTROLS[how](**arguments)

    @property
    def where(self) -> str:
        return f"{self._workflow}, step {self.execution.step_name}"

    def check_outside_of_blocks(self, how: str) -> None:
        """Refuse what may leave the step, where it would roll back a block of the step's own."""
        if not self.in_body:
            raise InvalidStateError(f"{self.where}: {how}() was called in a hook. Call it in the step.")
        for alias, depth in _open_blocks().items():
            if depth > self._outer_blocks.get(alias, 0):
                raise InvalidStateError(
                    f"{self.where}: {how}() was called inside a transaction.atomic() block on {alias!r}, "
                    "which it would roll back. Decide inside the block, call it after the block."
                )


def _open_blocks() -> dict[str, int]:
    return {
        connection.alias: len(connection.atomic_blocks)
        for connection in connections.all(initialized_only=True)
    }


def perform(claimed: ClaimedExecution, runner: Runner) -> StepResult:
    """Run the body with its hooks. What it raises is returned, never raised."""
    cls, definition = type(claimed.workflow), claimed.definition
    name = claimed.execution.step_name if definition is None else definition.function or definition.name
    function = f"{cls.__module__}.{cls.__qualname__}.{name}"
    with tracing.step_span(
        claimed.workflow, claimed.execution, function=function, attempt=claimed.reattempts
    ) as note:
        result = _perform(claimed, runner) if claimed.error is None else StepResult(error=claimed.error)
        note(result.error, None if result.control is None else result.control.word)
    return result


def _perform(claimed: ClaimedExecution, runner: Runner) -> StepResult:
    workflow = claimed.workflow
    context = StepContext(claimed)
    workflow._step = context
    began = time.perf_counter()
    try:
        result = StepResult(control=_run_with_hooks(claimed, runner, context))
    except BaseException as error:  # recorded, then raised again by the executor
        if is_simulated_death(error):
            raise
        result = StepResult(error=error)
    finally:
        workflow._step = None
    if step_performed.receivers:
        step_performed.send_robust(
            type(workflow),
            workflow=workflow,
            execution=claimed.execution,
            seconds=time.perf_counter() - began,
            error=result.error or result.control,
        )
    return result


def is_simulated_death(error: BaseException) -> bool:
    """Whether the testing kit lets the process die here: nothing may be written on the way out."""
    return getattr(error, "simulates_death", False) is True


def _run_with_hooks(
    claimed: ClaimedExecution, runner: Runner, context: StepContext
) -> flow.FlowControl | None:
    workflow, execution = claimed.workflow, claimed.execution
    hooks = type(workflow)._geneva.hooks
    control = None
    with workflow.around_step(execution) if "around_step" in hooks else nullcontext():
        if "before_step" in hooks:
            workflow.before_step(execution)
        control = _run_body(claimed, runner, context)
        if "after_step" in hooks:
            workflow.after_step(execution)
    return control


def _run_body(claimed: ClaimedExecution, runner: Runner, context: StepContext) -> flow.FlowControl | None:
    definition = claimed.definition
    assert definition is not None
    function = getattr(claimed.workflow, definition.function or definition.name)
    # Only now: a hook may have opened blocks of its own around the body, and those are not the step's.
    context.enter_body()
    try:
        if definition.resumable:
            return _run_resumable(function, claimed, definition, runner, context)
        return _call(function, claimed)
    finally:
        context.in_body = False


def _run_resumable(
    function: Any, claimed: ClaimedExecution, definition: StepDefinition, runner: Runner, context: StepContext
) -> flow.FlowControl | None:
    execution = claimed.execution
    cursor = Cursor(execution, claimed.token, definition, runner, context.where)
    resumed = execution.continues_from_id is not None
    is_dead = False
    try:
        return _call(function, claimed, Iteration(cursor, context.check_outside_of_blocks, resumed=resumed))
    except BaseException as error:
        is_dead = is_simulated_death(error)
        raise
    finally:
        if not is_dead:
            cursor.close()
        if cursor.has_progressed:
            # What failed before does not count any more.
            execution.crashes = claimed.reattempts = 0


def handle(claimed: ClaimedExecution, handler: Any, error: BaseException) -> flow.FlowControl | None:
    """Run a handler of exceptions and return what it decided, None for nothing.

    It gets the instance of the body, and so sees what the body left on it. Raises what the handler raises.

    Parameters
    ----------
    handler
        A method's name, or a callable of the workflow and the error.
    """
    workflow = claimed.workflow
    context = StepContext(claimed, resumable=False)
    context.enter_body()
    workflow._step = context
    try:
        if isinstance(handler, str):
            return _call(getattr(workflow, handler), claimed, error)
        return _call(handler, claimed, workflow, error)
    finally:
        workflow._step = None


def _call(function: Any, claimed: ClaimedExecution, *arguments: Any) -> flow.FlowControl | None:
    """Call a body or a handler; return the flow control that it ended with, so that no hook can swallow it."""
    try:
        if not iscoroutinefunction(function):
            function(*arguments)
            return None
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            # async_to_sync keeps the ORM on this thread and its connection.
            async_to_sync(function)(*arguments)
            return None
    except BaseException as error:
        control = flow.unwrap(error)
        if control is None:
            raise
        return control
    raise InvalidStateError(
        f"{claimed.workflow}, step {claimed.execution.step_name}: an async step cannot run inside a "
        "running event loop. Run it by a worker, or call from a thread (sync_to_async)."
    )

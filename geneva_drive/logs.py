"""The fields that every log record about a workflow has. All loggers are below ``geneva_drive``.

The fields are attributes of the record, so that a formatter, Sentry or a JSON handler finds them:
``workflow_type``, ``workflow_id``, ``hero`` (``app.model key``), ``execution_id``, ``step``. A field without
a value is None.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from geneva_drive.models.step_execution import StepExecution
    from geneva_drive.models.workflow import Workflow

FIELDS = ("workflow_type", "workflow_id", "hero", "execution_id", "step")


def about(
    workflow: Workflow | None = None, execution: StepExecution | None = None, **known: Any
) -> dict[str, Any]:
    """Return the ``extra`` of a log record about a workflow, an execution, or both.

    Parameters
    ----------
    known
        Fields that are known without a row, such as ``workflow_id``.
    """
    extra: dict[str, Any] = dict.fromkeys(FIELDS)
    if workflow is not None:
        extra |= {"workflow_type": workflow.type, "workflow_id": workflow.pk, "hero": workflow.hero_label}
        extra["step"] = workflow.current_step_name
    if execution is not None:
        extra |= {
            "workflow_id": execution.workflow_id,
            "execution_id": execution.pk,
            "step": execution.step_name,
        }
    return extra | known


class StepLogger(logging.LoggerAdapter[logging.Logger]):
    """``self.logger`` in a step: adds the fields to the step's own ``extra``."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        # Before Python 3.13 the standard adapter replaces the ``extra`` of a call.
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs

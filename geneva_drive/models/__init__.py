"""The tables, and the workflow class that projects derive theirs from."""

from __future__ import annotations

from geneva_drive.models.hero import WorkflowRelation
from geneva_drive.models.records import OperatorAction, Process, Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow

__all__ = ["OperatorAction", "Process", "Signal", "StepExecution", "Workflow", "WorkflowRelation"]

"""The tables, and the workflow class that projects derive theirs from."""

from __future__ import annotations

from geneva_drive.models.operator_action import OperatorAction
from geneva_drive.models.process import Process
from geneva_drive.models.relations import WorkflowRelation
from geneva_drive.models.signal import Signal
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow

__all__ = ["OperatorAction", "Process", "Signal", "StepExecution", "Workflow", "WorkflowRelation"]

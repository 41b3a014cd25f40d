"""Workflows in Django's admin: a list, a page for each, an overview, and the actions of operators."""

from __future__ import annotations

from geneva_drive.admin.inline import WorkflowInline
from geneva_drive.admin.workflow_admin import WorkflowAdmin

__all__ = ["WorkflowAdmin", "WorkflowInline"]

"""Where models and their users find the registry of workflow classes."""

from __future__ import annotations

from geneva_drive.definition.registry import registry

__all__ = ["registry"]

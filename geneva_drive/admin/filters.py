"""The list's filters. Each sets one part of a `Selection`, which background work applies in the same way."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter
from django.http import HttpRequest
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from geneva_drive import clock
from geneva_drive.conf import settings
from geneva_drive.definition.registry import registry
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.workflow import Workflow
from geneva_drive.reports.selection import Selection, errors_named
from geneva_drive.reports.wording import in_words
from geneva_drive.states import ONGOING, ExecutionState, WorkflowState

_MOST_ERRORS = 100
_NEWEST_PAUSED = 500


class Filter(SimpleListFilter):
    """One part of the selection, from one parameter of the address."""

    part: ClassVar[str]

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:  # noqa: ARG002
        value = self.value()
        if not value:
            return queryset
        try:
            return Selection(**{self.part: self.read(value, queryset.db)}).apply(queryset, queryset.db)
        except ValueError:
            # Django would redirect to the whole list; ours is empty and says what is wrong.
            return queryset.none()

    @classmethod
    def read(cls, value: str, using: str) -> Any:  # noqa: ARG003
        """Return the part of the selection.

        Raises
        ------
        ValueError
            The value means nothing. The message says what a right one looks like.
        """
        return value

    @classmethod
    def unknown(cls, value: str, parameters: Mapping[str, str], using: str) -> str:  # noqa: ARG003
        """Say what is wrong with a name that this code does not know, or return an empty text."""
        return ""


class _Choice(Filter):
    """One of a few values, each with its label and its part of the selection. A text names the setting that has it."""

    values: ClassVar[dict[str, tuple[Any, Any]]]

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        return [
            (value, label % {"time": in_words(getattr(settings, part))} if isinstance(part, str) else label)
            for value, (label, part) in self.values.items()
        ]

    @classmethod
    def read(cls, value: str, using: str) -> Any:  # noqa: ARG003
        if value not in cls.values:
            words = {"value": value, "choices": ", ".join(cls.values)}
            raise ValueError(gettext("'%(value)s' is not a valid value. Choose one of: %(choices)s.") % words)
        part = cls.values[value][1]
        return getattr(settings, part) if isinstance(part, str) else part


class StateFilter(_Choice):
    title, parameter_name, part = _("state"), "state", "states"
    values: ClassVar = {
        "ongoing": (_("ongoing"), tuple(str(state) for state in ONGOING)),
        **{str(state): (state.label, (str(state),)) for state in WorkflowState},
    }


class OverdueFilter(_Choice):
    title, parameter_name, part = _("due time"), "overdue", "overdue"
    values: ClassVar = {
        "any": (_("overdue"), timedelta(0)),
        "long": (_("overdue by more than %(time)s"), "OVERDUE_AFTER"),
        "day": (_("overdue by more than a day"), timedelta(days=1)),
    }


class WaitingFilter(_Choice):
    title, parameter_name, part = _("wait for a signal"), "waiting", "waiting_longer"
    values: ClassVar = {
        "any": (_("waiting"), timedelta(0)),
        "long": (_("waiting for more than %(time)s"), "WAITING_TOO_LONG"),
    }


class UndeclaredFilter(_Choice):
    title, parameter_name, part = _("declaration"), "undeclared", "undeclared"
    values: ClassVar = {"yes": (_("step or class undeclared"), True)}


class _Since(_Choice):
    values: ClassVar = {
        "hour": (_("in the last hour"), timedelta(hours=1)),
        "day": (_("in the last day"), timedelta(days=1)),
        "week": (_("in the last week"), timedelta(days=7)),
    }

    @classmethod
    def read(cls, value: str, using: str) -> datetime:
        span: timedelta = super().read(value, using)
        return clock.now(using) - span


class CreatedFilter(_Since):
    title, parameter_name, part = _("start time"), "created", "created_after"


class MovedFilter(_Since):
    title, parameter_name, part = _("time of end or pause"), "moved", "moved_after"


class _Name(Filter):
    """A name from the code, or one that only rows have."""

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        names, chosen = list(self.names(model_admin.alias(request), request.GET)), self.value()
        if chosen and chosen not in names:
            names.insert(0, chosen)
        return [(name, name) for name in names]

    def names(self, using: str, parameters: Mapping[str, str]) -> Iterable[str]:  # noqa: ARG002
        return ()


class TypeFilter(_Name):
    title, parameter_name, part = _("type"), "type", "type"

    def names(self, using: str, parameters: Mapping[str, str]) -> Iterable[str]:  # noqa: ARG002
        return sorted(cls._geneva.label for cls in registry.all())

    @classmethod
    def unknown(cls, value: str, parameters: Mapping[str, str], using: str) -> str:  # noqa: ARG003
        if registry.get(value) is not None:
            return ""
        words = {"value": value, "example": min(each._geneva.label for each in registry.all())}
        text = gettext("there is no type '%(value)s'. Write app_label.ClassName, for example %(example)s.")
        return text % words


class StepFilter(_Name):
    title, parameter_name, part = _("step"), "step", "step"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        return super().lookups(request, model_admin) or [("", _("choose a type first"))]

    def names(self, using: str, parameters: Mapping[str, str]) -> Iterable[str]:  # noqa: ARG002
        cls = registry.get(parameters.get("type", ""))
        return cls.steps.names if cls is not None else ()

    @classmethod
    def unknown(cls, value: str, parameters: Mapping[str, str], using: str) -> str:  # noqa: ARG003
        of_type = registry.get(parameters.get("type", ""))
        if any(each.steps.resolve(value) for each in ([of_type] if of_type else registry.all())):
            return ""
        if of_type is None:
            return gettext("no type has a step '%(value)s': choose a type first.") % {"value": value}
        words = {"value": value, "type": of_type._geneva.label, "steps": ", ".join(of_type.steps.names)}
        return gettext("'%(value)s' is not a step of %(type)s. It has %(steps)s.") % words


class TriedFilter(_Name):
    """The page of removed steps links to it; it is shown while it is in use."""

    title, parameter_name, part = _("step attempted"), "tried", "tried"
    unknown = StepFilter.unknown

    def has_output(self) -> bool:
        return bool(self.value())


class ErrorFilter(_Name):
    title, parameter_name, part = _("error"), "error", "error"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        return [(name, name.rsplit(".", 1)[-1]) for name, _label in super().lookups(request, model_admin)]

    def names(self, using: str, parameters: Mapping[str, str]) -> Iterable[str]:  # noqa: ARG002
        # Of the latest to be paused: nobody asks for all errors of the past.
        paused = Workflow.objects.using(using).paused().order_by("-transitioned_at")
        failed = StepExecution.objects.using(using).filter(
            workflow_id__in=list(paused.values_list("pk", flat=True)[:_NEWEST_PAUSED]),
            state=ExecutionState.FAILED,
            error_class__isnull=False,
        )
        names: Any = failed.order_by("error_class").values_list("error_class", flat=True)
        return list(names.distinct()[:_MOST_ERRORS])

    @classmethod
    def unknown(cls, value: str, parameters: Mapping[str, str], using: str) -> str:  # noqa: ARG003
        if errors_named(using, value):
            return ""
        text = gettext("no step failed with '%(value)s'. Write an error's class: builtins.ValueError.")
        return text % {"value": value}


class QueueFilter(_Name):
    title, parameter_name, part = _("queue"), "queue", "queue"

    def names(self, using: str, parameters: Mapping[str, str]) -> Iterable[str]:  # noqa: ARG002
        return StepExecution.objects.using(using).free().skip_scan("queue")

    @classmethod
    def unknown(cls, value: str, parameters: Mapping[str, str], using: str) -> str:  # noqa: ARG003
        queues = list(StepExecution.objects.using(using).free().skip_scan("queue"))
        if value in queues:
            return ""
        words = {"value": value, "queues": ", ".join(queues) or "-"}
        return gettext("nothing is on the queue '%(value)s'. Queues in use: %(queues)s.") % words


class HeroFilter(Filter):
    """A text field: there are as many heroes as rows."""

    title, parameter_name, part = _("hero"), "hero", "hero"
    template = "geneva_drive/admin/hero_filter.html"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        return [("", "")]

    def choices(self, changelist: Any) -> Any:
        others = changelist.get_filters_params().items()
        pairs = [(name, value) for name, values in others if name != "hero" for value in values]
        if changelist.query:
            pairs.append(("q", changelist.query))
        without = changelist.get_query_string(remove=["hero"])
        yield {"value": self.value() or "", "pairs": pairs, "without": without}


FILTERS: tuple[type[Filter], ...] = (
    StateFilter,
    TypeFilter,
    StepFilter,
    TriedFilter,
    HeroFilter,
    ErrorFilter,
    QueueFilter,
    OverdueFilter,
    WaitingFilter,
    UndeclaredFilter,
    CreatedFilter,
    MovedFilter,
)

"""The list's filters. Each asks for one part of a `Selection`, so that background work can ask the same."""

from __future__ import annotations

from collections.abc import Iterable
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
from geneva_drive.reports.selection import Selection
from geneva_drive.states import ONGOING, ExecutionState, WorkflowState

_CHOICES = 100
_NEWEST_PAUSED = 500


class _Filter(SimpleListFilter):
    """One part of the selection, from one parameter."""

    part: ClassVar[str]

    def lookups(self, request: HttpRequest, model_admin: Any) -> Iterable[tuple[str, Any]]:
        return self.choices_on(model_admin.alias(request), request)

    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        raise NotImplementedError

    def has_output(self) -> bool:
        return True

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:  # noqa: ARG002
        value = self.value()
        if not value:
            return queryset
        try:
            return Selection(**{self.part: self.read(value, queryset.db)}).apply(queryset, queryset.db)
        except ValueError:
            # Django would lead to the list of everything; the list says what is wrong, and is empty.
            return queryset.none()

    @classmethod
    def read(cls, value: str, using: str) -> Any:  # noqa: ARG003
        """Return the part of the selection.

        Raises
        ------
        ValueError
            The value means nothing. The message says what one looks like.
        """
        return value


def _meaning(value: str, meanings: dict[str, Any]) -> Any:
    if value not in meanings:
        words = {"value": value, "choices": ", ".join(meanings)}
        raise ValueError(gettext("'%(value)s' is none of these: %(choices)s.") % words)
    return meanings[value]


class TypeFilter(_Filter):
    title, parameter_name, part = _("type"), "type", "type"

    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        labels = {cls._geneva.label for cls in registry.all()}
        chosen = request.GET.get("type")
        return [(label, label) for label in sorted(labels | ({chosen} if chosen else set()))]


class StateFilter(_Filter):
    title, parameter_name, part = _("state"), "state", "states"

    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        return [("ongoing", _("ongoing")), *WorkflowState.choices]

    @classmethod
    def read(cls, value: str, using: str) -> Any:  # noqa: ARG003
        ongoing = tuple(str(state) for state in ONGOING)
        return _meaning(value, {"ongoing": ongoing, **{state: (state,) for state in WorkflowState.values}})


class StepFilter(_Filter):
    title, parameter_name, part = _("step"), "step", "step"

    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        cls = registry.get(request.GET.get("type", ""))
        names = cls.steps.names if cls is not None else ()
        chosen = request.GET.get("step")
        if chosen and chosen not in names:
            names = (chosen, *names)
        return [(name, name) for name in names] or [("", _("choose a type first"))]


class TriedFilter(StepFilter):
    """Offered by the page of removed steps alone, and shown while it is in use."""

    title, parameter_name, part = _("attempt at"), "tried", "tried"

    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        chosen = request.GET.get("tried")
        return [(chosen, chosen)] if chosen else []

    def has_output(self) -> bool:
        return bool(self.value())


class HeroFilter(_Filter):
    """A line to type into: there are as many heroes as rows."""

    title, parameter_name, part = _("hero"), "hero", "hero"
    template = "geneva_drive/admin/hero_filter.html"

    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        return [("", "")]

    def choices(self, changelist: Any) -> Any:
        others = changelist.get_filters_params().items()
        pairs = [(name, value) for name, values in others if name != "hero" for value in values]
        if changelist.query:
            pairs.append(("q", changelist.query))
        yield {
            "value": self.value() or "",
            "pairs": pairs,
            "without": changelist.get_query_string(remove=["hero"]),
        }


class ErrorFilter(_Filter):
    title, parameter_name, part = _("error"), "error", "error"

    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:
        # Those of the latest to be paused: all of history has errors that nobody asks for.
        paused = Workflow.objects.using(using).paused().order_by("-transitioned_at")
        keys = list(paused.values_list("pk", flat=True)[:_NEWEST_PAUSED])
        failed = StepExecution.objects.using(using).filter(
            workflow_id__in=keys, state=ExecutionState.FAILED, error_class__isnull=False
        )
        names = failed.order_by("error_class").values_list("error_class", flat=True).distinct()[:_CHOICES]
        chosen = request.GET.get("error")
        found = [str(name) for name in names]
        if chosen and chosen not in found:
            found.insert(0, chosen)
        return [(name, name.rsplit(".", 1)[-1]) for name in found]


class QueueFilter(_Filter):
    title, parameter_name, part = _("queue"), "queue", "queue"

    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        return [(queue, queue) for queue in StepExecution.objects.using(using).free().skip_scan("queue")]


class OverdueFilter(_Filter):
    title, parameter_name, part = _("overdue"), "overdue", "overdue"

    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        return [("any", _("at all")), ("long", _("beyond the limit")), ("day", _("for more than a day"))]

    @classmethod
    def read(cls, value: str, using: str) -> Any:  # noqa: ARG003
        meanings = {"any": timedelta(0), "long": settings.OVERDUE_AFTER, "day": timedelta(days=1)}
        return _meaning(value, meanings)


class WaitingFilter(_Filter):
    title, parameter_name, part = _("waiting for a signal"), "waiting", "waiting_longer"

    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        return [("any", _("at all")), ("long", _("too long"))]

    @classmethod
    def read(cls, value: str, using: str) -> Any:  # noqa: ARG003
        return _meaning(value, {"any": timedelta(0), "long": settings.WAITING_TOO_LONG})


class UndeclaredFilter(_Filter):
    title, parameter_name, part = _("undeclared"), "undeclared", "undeclared"

    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        return [("yes", _("step or class missing"))]

    @classmethod
    def read(cls, value: str, using: str) -> Any:  # noqa: ARG003
        return _meaning(value, {"yes": True})


_SPANS = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}


class _Since(_Filter):
    def choices_on(self, using: str, request: HttpRequest) -> Iterable[tuple[str, Any]]:  # noqa: ARG002
        return [
            ("hour", _("in the last hour")),
            ("day", _("in the last day")),
            ("week", _("in the last week")),
        ]

    @classmethod
    def read(cls, value: str, using: str) -> datetime:
        span: timedelta = _meaning(value, _SPANS)
        return clock.now(using) - span


class CreatedFilter(_Since):
    title, parameter_name, part = _("created"), "created", "created_after"


class MovedFilter(_Since):
    title, parameter_name, part = _("ended or paused"), "moved", "moved_after"


FILTERS: tuple[type[_Filter], ...] = (
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

"""The base class of workflows: its columns, and how to start one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Self

from django.contrib.contenttypes.models import ContentType
from django.db import models, router
from django.utils.translation import gettext_lazy as _

from geneva_drive.definition.registry import registry
from geneva_drive.exceptions import InvalidStateError
from geneva_drive.models.fields import (
    HeroKeyField,
    IdentifierField,
    JSONColumn,
    UTCDateTimeField,
    ongoing_key_field,
    primary_key,
)
from geneva_drive.models.hero import HeroForeignKey, check_hero
from geneva_drive.models.metaclass import WorkflowMeta
from geneva_drive.models.querysets import WorkflowManager
from geneva_drive.models.step_execution import StepExecution
from geneva_drive.models.verbs import Verbs, alters_data, lifecycle
from geneva_drive.states import ENDED, ONGOING, WorkflowState

if TYPE_CHECKING:
    from django.db.models.base import ModelBase

    from geneva_drive.definition.class_definition import ClassDefinition
    from geneva_drive.definition.collection import StepCollection


_SAVEABLE = frozenset({"metadata", "job_options", "updated_at"})


class Workflow(Verbs, models.Model, metaclass=WorkflowMeta):
    """Derive from it, declare steps in order, start it for a model instance.

    Subclasses are hidden proxies: they share this table and need no migration. A row is loaded as an instance
    of the class that its ``type`` names; a row of an undeclared type is loaded as ``Workflow`` itself, which can
    be read and canceled.
    """

    steps: ClassVar[StepCollection]
    _geneva: ClassVar[ClassDefinition]

    # A subclass may set these; they are checked when it is made, and stored in ``_geneva``.
    hero_model: ClassVar[str | type[models.Model] | None] = None
    may_proceed_without_hero: ClassVar[bool] = False
    former_types: ClassVar[list[str]] = []

    id = primary_key()
    type = IdentifierField(max_length=150, editable=False)
    hero_type = models.ForeignKey(
        ContentType, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    hero_id = HeroKeyField(null=True, blank=True)
    hero = HeroForeignKey("hero_type", "hero_id")
    state = IdentifierField(max_length=20, choices=WorkflowState.choices, default=WorkflowState.READY)
    current_step_name = IdentifierField(
        max_length=150, null=True, blank=True, help_text=_("Set while a step is running.")
    )
    next_step_name = IdentifierField(max_length=150, null=True, blank=True)
    allow_multiple = models.BooleanField(default=False, db_default=False)
    pause_requested_at = UTCDateTimeField(null=True, blank=True)
    job_options = JSONColumn(null=True, blank=True)
    metadata = JSONColumn(null=True, blank=True, help_text=_("For the project's own use."))
    created_at = UTCDateTimeField()
    started_at = UTCDateTimeField(null=True, blank=True)
    transitioned_at = UTCDateTimeField(
        null=True, blank=True, help_text=_("When it was last finished, canceled or paused.")
    )
    updated_at = UTCDateTimeField()
    ongoing_key = ongoing_key_field()

    objects = WorkflowManager()

    class Meta:
        verbose_name = _("workflow")
        verbose_name_plural = _("workflows")
        constraints = [
            models.UniqueConstraint(fields=["ongoing_key"], name="geneva_one_ongoing_workflow"),
        ]
        indexes = [
            # WorkflowRelation.
            models.Index(fields=["hero_type", "hero_id"], name="geneva_workflow_of_hero"),
            # Lists and counts: how many of a type are in a state?
            models.Index(fields=["type", "state"], name="geneva_workflow_type_state"),
            # The clean-up: which ended before the retention time?
            models.Index(fields=["state", "transitioned_at"], name="geneva_workflow_ended"),
            # Lists: which were started since? The column never changes, so that no step updates this index.
            models.Index(fields=["created_at"], name="geneva_workflow_created"),
        ]
        permissions = [
            ("pause_workflow", _("Can pause a workflow")),
            ("resume_workflow", _("Can resume a workflow")),
            ("resume_workflow_at_step", _("Can resume a workflow at a chosen step")),
            ("skip_workflow_step", _("Can skip a workflow's step")),
            ("cancel_workflow", _("Can cancel a workflow")),
            ("signal_workflow", _("Can send a signal to a workflow")),
            ("start_workflow", _("Can start a workflow")),
            ("reschedule_workflow", _("Can reschedule a workflow's step")),
        ]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not args and not self.type and type(self)._geneva.is_startable:
            self.type = type(self)._geneva.label

    def __str__(self) -> str:
        hero = self.hero_label if self._state.db else ""
        return f"{self.type} {self.pk}" + (f" for {hero}" if hero else "")

    @classmethod
    def from_db(
        cls, db: str | None, field_names: Collection[str], values: Collection[Any], **kwargs: Any
    ) -> Self:
        """Return an instance of the class that the row's type names."""
        # Django 6.1 passes keyword arguments.
        instance = super().from_db(db, field_names, values, **kwargs)
        known = registry.get(instance.__dict__.get("type", ""))
        if known is not None and known is not type(instance):
            instance.__class__ = known
        return instance

    @classmethod
    @alters_data
    def start(
        cls,
        hero: models.Model | None = None,
        *,
        at: datetime | None = None,
        allow_multiple: bool = False,
        job_options: Mapping[str, Any] | None = None,
        metadata: Any = None,
        using: str | None = None,
    ) -> Self:
        """Create a run for ``hero`` and schedule its first step, in the caller's transaction.

        Parameters
        ----------
        hero
            A saved instance, or None on a class with ``may_proceed_without_hero``.
        at
            When the run begins; the first step's ``wait`` counts from there. Default: now.
        allow_multiple
            Start it even if the hero has an ongoing run of this type, and do not block others.
        job_options
            For this run: ``queue``, ``priority``, ``wait``, ``wait_until``.
        metadata
            For the project's own use: any storable value.
        using
            The database alias. Default: the hero's, else the routers' choice.

        Raises
        ------
        AlreadyOngoingError
            The hero has an ongoing run of this type; it is the error's ``workflow``.
        HeroKeyError, HeroRequiredError, HeroError
            The hero is wrong. Nothing was written.
        """
        workflow = cls(
            hero=hero,
            allow_multiple=allow_multiple,
            job_options=dict(job_options) if job_options is not None else None,
            metadata=metadata,
        )
        workflow._start_at = at
        workflow.save(using=using or cls._alias_for(hero))
        return workflow

    @classmethod
    @alters_data
    def get_or_start(
        cls, hero: models.Model | None, *, using: str | None = None, **options: Any
    ) -> tuple[Self, bool]:
        """Return the hero's ongoing run and False, or a new one and True."""
        joined: tuple[Self, bool] = lifecycle(
            "get_or_start", cls, hero, using=using or cls._alias_for(hero), **options
        )
        return joined

    @classmethod
    @alters_data
    def start_many(
        cls,
        heroes: Iterable[models.Model],
        *,
        at: datetime | None = None,
        job_options: Mapping[str, Any] | None = None,
        using: str | None = None,
        batch_size: int = 500,
    ) -> tuple[list[Self], list[models.Model]]:
        """Start a run for each hero in few queries.

        Returns
        -------
        tuple
            The created workflows, and the heroes that were skipped because they have an ongoing run of this
            type.
        """
        started: tuple[list[Self], list[models.Model]] = lifecycle(
            "start_many", cls, heroes, at=at, job_options=job_options, using=using, batch_size=batch_size
        )
        return started

    @classmethod
    def _alias_for(cls, hero: models.Model | None) -> str:
        hints = {"instance": hero} if hero is not None else {}
        return router.db_for_write(Workflow, **hints)

    @alters_data
    def save(
        self,
        *,
        force_insert: bool | tuple[ModelBase, ...] = False,  # noqa: ARG002 - a new row is always inserted
        force_update: bool = False,
        using: str | None = None,
        update_fields: Iterable[str] | None = None,
    ) -> None:
        """Start a new workflow; of an existing one, save only ``metadata`` and ``job_options``.

        Other columns are written by the library, and a stale instance must not overwrite them.
        """
        if self._state.adding:
            lifecycle("save_new", self, using=using)
            return
        fields = _SAVEABLE if update_fields is None else frozenset(update_fields)
        if not fields <= _SAVEABLE:
            raise InvalidStateError(
                f"{self}: {', '.join(sorted(fields - _SAVEABLE))} cannot be saved directly. Use "
                "pause(), resume(), resume_at(), skip() or cancel()."
            )
        lifecycle("touch", self)
        loaded = fields - self.get_deferred_fields()
        super().save(force_update=force_update, using=using, update_fields=loaded | {"updated_at"})

    @property
    def hero_label(self) -> str:
        """``app.model key`` of the hero, without loading it, or "" without a hero."""
        if self.hero_type_id is None:
            return ""
        content_type = ContentType.objects.db_manager(self._state.db).get_for_id(self.hero_type_id)
        return f"{content_type.app_label}.{content_type.model} {self.hero_id}"

    @property
    def hero_given(self) -> models.Model | None:
        """The hero, if it was given or loaded already; no query."""
        field: Any = self._meta.get_field("hero")
        hero: models.Model | None = field.get_cached_value(self, default=None)
        return hero

    def check_hero(self, using: str) -> None:
        """Raise a `HeroError` if this workflow cannot have its hero on ``using``."""
        check_hero(self, using)

    @property
    def is_ongoing(self) -> bool:
        return self.state in ONGOING

    @property
    def is_ended(self) -> bool:
        return self.state in ENDED

    @classmethod
    def removed_steps_in_flight(cls, using: str | None = None) -> dict[str, int]:
        """Return, by gravestone, how many executions of ongoing workflows name it.

        Names without rows are left out: an empty dict means that the gravestones can be deleted.
        """
        alias = using or router.db_for_read(StepExecution)
        executions = StepExecution.objects.using(alias)
        return executions.in_flight(registry.labels_for(cls), (step.name for step in cls.steps.removed))

    def before_step(self, execution: StepExecution) -> None:
        """Called before a step's body, without locks. An exception fails the step."""

    def after_step(self, execution: StepExecution) -> None:
        """Called after a body that raised nothing, without locks."""

    def around_step(self, execution: StepExecution) -> AbstractContextManager[Any]:
        """Return a context manager that surrounds the body and both other hooks."""
        raise NotImplementedError  # pragma: no cover - only an overridden one is called

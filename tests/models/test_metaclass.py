"""Workflow classes as Django sees them: hidden proxies, made or refused as a whole."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from io import StringIO
from typing import Any, ClassVar

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.management import create_permissions
from django.contrib.auth.models import Permission
from django.contrib.contenttypes.management import create_contenttypes
from django.contrib.contenttypes.models import ContentType
from django.core.management import call_command
from django.db import models
from django.db.migrations.state import ProjectState
from django.db.models.deletion import Collector

from geneva_drive import StepConfigurationError, Workflow, removed_step, step
from geneva_drive.definition.registry import registry
from geneva_drive.models.querysets import WorkflowManager
from tests.definition.support import Base, define, registry_left_alone
from tests.testapp.models import Order, Ticket
from tests.testapp.workflows import FiveSteps, Heroless


@pytest.fixture(autouse=True)
def _registry_left_alone() -> Iterator[None]:
    with registry_left_alone():
        yield


# -- hidden from migrations, content types and permissions


def test_a_class_is_no_model_of_the_migrations() -> None:
    class Made(Base):
        @step
        def ship(self) -> None: ...

    assert ("testapp", "made") not in ProjectState.from_apps(apps).models
    assert ("testapp", "order") in ProjectState.from_apps(apps).models
    assert Made not in apps.get_models()
    assert Made in apps.get_models(include_auto_created=True)


@pytest.mark.django_db(databases="__all__")
def test_a_class_has_nothing_to_migrate() -> None:
    class Made(Base):
        pass

    out = StringIO()
    call_command("makemigrations", "testapp", "geneva_drive", dry_run=True, verbosity=3, stdout=out)

    # The app of the tests has no migrations, so all of its models are new to the command.
    assert "name='Order'" in out.getvalue()
    for cls in (Made, Base, FiveSteps):
        assert cls.__name__ not in out.getvalue()


@pytest.mark.django_db
def test_a_class_has_neither_content_type_nor_permissions() -> None:
    class Made(Base):
        pass

    config = apps.get_app_config("testapp")
    create_contenttypes(config, verbosity=0)
    create_permissions(config, verbosity=0)

    types = set(ContentType.objects.filter(app_label="testapp").values_list("model", flat=True))
    assert "order" in types
    assert not types & {"made", "base", "fivesteps", "heroless"}
    assert not Permission.objects.filter(codename__contains="made").exists()
    assert ContentType.objects.get_for_model(Made).model_class() is Workflow


def test_a_class_can_be_registered_with_the_admin() -> None:
    site = admin.AdminSite()

    site.register(FiveSteps)

    assert site.is_registered(FiveSteps)


# -- rows


@pytest.mark.django_db
def test_a_row_comes_back_as_the_class_that_its_type_names() -> None:
    five = FiveSteps.start(Order.objects.create())
    heroless = Heroless.start()

    assert type(Workflow.objects.get(pk=five.pk)) is FiveSteps
    assert type(Workflow.objects.only("state").get(pk=heroless.pk)) is Heroless
    assert type(Workflow.objects.defer("type").get(pk=heroless.pk)) is Heroless
    execution = five.executions.select_related("workflow").get()
    assert type(execution.workflow) is FiveSteps
    assert list(FiveSteps.objects.all()) == [five]
    assert list(Heroless.objects.all()) == [heroless]


@pytest.mark.django_db
@pytest.mark.parametrize(
    "label", ["os.system", "testapp.Gone", "", "builtins.type", "tests.testapp.workflows"]
)
def test_a_row_of_an_unknown_type_is_the_base_class(label: str) -> None:
    made = Heroless.start()
    Workflow.objects.filter(pk=made.pk).update(type=label)

    found = Workflow.objects.get(pk=made.pk)

    assert type(found) is Workflow
    assert found.type == label
    assert len(found.steps) == 0


@pytest.mark.django_db
def test_a_row_of_a_former_type_comes_back_as_its_successor() -> None:
    made = Heroless.start()
    Workflow.objects.filter(pk=made.pk).update(type="testapp.Earlier")

    class Later(Base):
        former_types = ["testapp.Earlier"]

    class Latest(Later):
        """Has its own past, not its parent's."""

    assert type(Workflow.objects.get(pk=made.pk)) is Later
    assert list(Later.objects.values_list("pk", flat=True)) == [made.pk]
    assert not Latest.objects.exists()
    assert Latest.former_types == []


@pytest.mark.django_db
def test_rows_of_subclasses_are_found_through_their_parents() -> None:
    class Shared(Base):
        class Meta(Base.Meta):
            abstract = True

    class Parent(Shared):
        may_proceed_without_hero = True

        @step
        def ship(self) -> None: ...

    class Child(Parent):
        pass

    parent, child = Parent.start(), Child.start()

    assert {type(each) for each in Shared.objects.all()} == {Parent, Child}
    assert set(Parent.objects.all()) == {parent, child}
    assert set(Child.objects.all()) == {child}


@pytest.mark.django_db
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda row: pickle.loads(pickle.dumps(row))])
def test_rows_can_be_copied_pickled_and_refreshed(copied: Any) -> None:
    made = FiveSteps.start(Order.objects.create())

    twin = copied(Workflow.objects.get(pk=made.pk))
    twin.refresh_from_db()

    assert type(twin) is FiveSteps
    assert twin == made


@pytest.mark.django_db
def test_the_signals_of_saving_are_sent_for_a_class() -> None:
    seen: list[tuple[type, bool]] = []

    def receive(sender: type, created: bool, **kwargs: Any) -> None:
        seen.append((sender, created))

    models.signals.post_save.connect(receive, sender=Heroless)
    try:
        Heroless.start()
    finally:
        models.signals.post_save.disconnect(receive, sender=Heroless)

    assert seen == [(Heroless, True)]


@pytest.mark.django_db
def test_a_row_is_deleted_as_the_base_class_with_its_executions() -> None:
    made = Heroless.start()
    executions = made.executions.all()
    assert executions.exists()

    collector = Collector(using="default")
    collector.collect([Workflow.objects.get(pk=made.pk)])
    Workflow.objects.filter(pk=made.pk).delete()

    assert not Workflow.objects.filter(pk=made.pk).exists()
    assert not executions.exists()


# -- Meta


def test_a_class_keeps_the_options_that_are_its_own() -> None:
    class Made(Base):
        class Meta(Base.Meta):
            verbose_name = "thing that was made"
            ordering = ["-created_at"]

    class Child(Made):
        pass

    assert Made._meta.verbose_name == "thing that was made"
    assert Made._meta.verbose_name_plural == "thing that was mades"
    assert Made._meta.ordering == ["-created_at"]
    assert Child._meta.ordering == ["-created_at"]
    assert Child._meta.verbose_name == "child"
    assert Made._meta.db_table == Child._meta.db_table == Workflow._meta.db_table


def test_an_abstract_class_hands_on_its_meta_but_not_that_it_is_abstract() -> None:
    class Shared(Workflow):
        class Meta:
            abstract = True
            app_label = "testapp"
            ordering = ["pk"]

        @step
        def ship(self) -> None: ...

    class Implicit(Shared):
        pass

    class Explicit(Shared):
        class Meta(Shared.Meta):
            verbose_name = "explicit"

    assert Shared._geneva.is_abstract
    for cls in (Implicit, Explicit):
        assert not cls._geneva.is_abstract
        assert cls._meta.app_label == "testapp"
        assert cls._meta.ordering == ["pk"]
        assert cls.steps.names == ("ship",)
    assert registry.get("testapp.Shared") is None
    assert registry.get("testapp.Explicit") is Explicit


def test_a_class_in_an_app_needs_no_label() -> None:
    cls = define("class Made(Workflow): pass", __name__="tests.testapp.more.workflows")

    assert cls._meta.label == "testapp.Made"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("db_table", "made"),
        ("managed", False),
        ("proxy", True),
        ("unique_together", [("type", "state")]),
        ("indexes", []),
        ("constraints", []),
        ("permissions", []),
        ("default_permissions", []),
        ("default_manager_name", "objects"),
        ("get_latest_by", "pk"),
        ("swappable", "X"),
        ("verbose_name_plural", "mades"),
        ("oredring", ["pk"]),
    ],
)
def test_options_of_the_table_are_refused(option: str, value: Any) -> None:
    meta = type("Meta", (Base.Meta,), {option: value})

    with pytest.raises(StepConfigurationError, match=rf"Meta\.{option}=.*Possible are: app_label, abstract"):
        define("class Made(Base): Meta = meta", meta=meta)


# -- what is refused, whole classes


REFUSED = {
    "no app": ("class Made(Workflow): pass", "Set Meta.app_label"),
    "no app, abstract": (
        """
        class Made(Workflow):
            class Meta:
                abstract = True
        """,
        "Set Meta.app_label",
    ),
    "abstract neither way": (
        """
        class Made(Base):
            class Meta(Base.Meta):
                abstract = "yes"
        """,
        "Meta.abstract='yes'",
    ),
    "a label that is too long": (f"class Made{'e' * 140}(Base): pass", "longer than 150"),
    "a field": (
        """
        class Made(Base):
            note = models.CharField(max_length=5)
        """,
        "the field 'note'",
        "metadata",
    ),
    "a foreign key": (
        """
        class Made(Base):
            order = models.ForeignKey("testapp.Order", models.CASCADE, related_name="made")
        """,
        "the field 'order'",
    ),
    "a field of a plain mixin": (
        """
        class Mixin:
            note = models.CharField(max_length=5)
        class Made(Mixin, Base):
            class Meta(Base.Meta): pass
        """,
        "the field 'note' (inherited from shop.workflows.Mixin)",
    ),
    "a field of an abstract model": (
        """
        class Mixin(models.Model):
            note = models.CharField(max_length=5)
            class Meta:
                abstract = True
        class Made(Mixin, Base):
            class Meta(Base.Meta): pass
        """,
        "the field 'note' (inherited from shop.workflows.Mixin)",
    ),
    "a model with a table": ("class Made(Order, Base): pass", "testapp.Order is a model with its own table"),
    "a manager that is not ours": (
        """
        class Made(Base):
            objects = models.Manager()
        """,
        "the manager 'objects'",
        "geneva_drive.models.querysets.WorkflowManager",
    ),
    "a manager of an abstract model": (
        """
        class Mixin(models.Model):
            all_rows = models.Manager()
            class Meta:
                abstract = True
        class Made(Mixin, Base):
            class Meta(Base.Meta): pass
        """,
        "the manager 'all_rows' (inherited from shop.workflows.Mixin)",
    ),
    "a value over a column": ("class Made(Base): state = 'ready'", "'state' would hide a column"),
    "a value over the hero": ("class Made(Base): hero = None", "'hero' would hide a column", "annotate"),
    "a mixin's value over a column": (
        """
        class Mixin:
            hero_id = 5
        class Made(Mixin, Base): pass
        """,
        "'hero_id' (inherited from shop.workflows.Mixin)",
    ),
    "own steps": ("class Made(Base): steps = []", "'steps' is made from the steps"),
    "job options that are unknown": (
        "class Made(Base): job_options = {'quue': 'x'}",
        "Made.job_options",
        "'quue'",
    ),
    "job options that are no dict": ("class Made(Base): job_options = 'mail'", "Made.job_options: 'mail'"),
    "job options of a mixin": (
        """
        class Mixin:
            job_options = {"priority": True}
        class Made(Mixin, Base): pass
        """,
        "Made.job_options: priority=True",
    ),
    "a hero model without an app": (
        "class Made(Base): hero_model = 'Order'",
        "hero_model='Order'",
        "app_label",
    ),
    "a hero model that is no model": ("class Made(Base): hero_model = dict", "hero_model=<class 'dict'>"),
    "a hero model that is a row": ("class Made(Base): hero_model = Order()", "hero_model=<Order"),
    "a hero model that is abstract": (
        """
        class Mixin(models.Model):
            class Meta:
                abstract = True
        class Made(Base):
            hero_model = Mixin
        """,
        "hero_model=<class 'shop.workflows.Mixin'>",
    ),
    "heroless neither way": (
        "class Made(Base): may_proceed_without_hero = 'no'",
        "may_proceed_without_hero='no' is neither True nor False",
    ),
    "former types that are a text": (
        "class Made(Base): former_types = 'testapp.Old'",
        "'testapp.Old' is not a list",
    ),
    "a former type without an app": (
        "class Made(Base): former_types = ['Old']",
        "'Old'",
        "app_label.ClassName",
    ),
    "a former type that is a class": ("class Made(Base): former_types = [Order]", "testapp.models.Order"),
    "its own type as a former one": ("class Made(Base): former_types = ['testapp.Made']", "type now"),
    "a former type twice": ("class Made(Base): former_types = ['a.B', 'a.B']", "twice"),
    "a former type that lives": (
        "class Made(Base): former_types = ['testapp.FiveSteps']",
        "tests.testapp.workflows.FiveSteps",
    ),
    "the label of another module": (
        "class FiveSteps(Base): pass",
        "shop.workflows.FiveSteps",
        "tests.testapp.workflows.FiveSteps",
        "Rename one",
    ),
    "the label of another module, but for case": (
        "class Fivesteps(Base): pass",
        "shop.workflows.Fivesteps",
        "tests.testapp.workflows.FiveSteps",
    ),
    "the label of a model": ("class Order(Base): pass", "shop.workflows.Order", "tests.testapp.models.Order"),
    "the label of an abstract class": (
        "class Base(Base): pass",
        "shop.workflows.Base",
        "tests.definition.support.Base",
    ),
    "a hook that is async": (
        """
        class Made(Base):
            async def before_step(self, execution): ...
        """,
        "before_step is async",
    ),
    "a hook with other arguments": (
        """
        class Made(Base):
            def after_step(self): ...
        """,
        "after_step:",
        "(self, execution)",
    ),
    "a hook that is a generator": (
        """
        class Made(Base):
            def around_step(self, execution):
                yield
        """,
        "contextlib.contextmanager",
    ),
    "a hook that is nothing": ("class Made(Base): before_step = None", "before_step: None is not a function"),
}


@pytest.mark.parametrize(
    ("source", "says"), [(each[0], each[1:]) for each in REFUSED.values()], ids=REFUSED.keys()
)
def test_a_class_that_cannot_work_is_refused_before_it_is_made(source: str, says: tuple[str, ...]) -> None:
    known = registry.all(), {label: set(by_name) for label, by_name in apps.all_models.items()}
    relations = len(Order._meta.related_objects)

    with pytest.raises(StepConfigurationError) as caught:
        define(source, models=models, Order=Order)

    for part in says:
        assert part in str(caught.value)
    assert "shop.workflows." in str(caught.value)
    assert known == (registry.all(), {label: set(by_name) for label, by_name in apps.all_models.items()})
    assert len(Order._meta.related_objects) == relations


# -- what is allowed


def test_an_own_manager_that_inherits_ours() -> None:
    class LoudManager(WorkflowManager):
        def loud(self) -> str:
            return "loud"

    class Made(Base):
        objects = LoudManager()

    assert Made.objects.loud() == "loud"
    assert isinstance(Made._default_manager, LoudManager)


def test_ordinary_mixins_without_fields() -> None:
    class Plain:
        flavour = "plain"

    class Abstract(models.Model):
        class Meta:
            abstract = True

        def shout(self) -> str:
            return "shout"

    class Made(Plain, Abstract, Base):  # noqa: DJ008 - Workflow has it
        class Meta(Base.Meta):
            pass

        @step
        def ship(self) -> None: ...

    assert (Made().flavour, Made().shout()) == ("plain", "shout")
    assert Made._meta.proxy
    assert Made._meta.concrete_model is Workflow
    assert Made._meta.app_label == "testapp"


def test_class_keywords_and_init_subclass_reach_python() -> None:
    class Tagged:
        tag: str

        def __init_subclass__(cls, *, tag: str = "none", **kwargs: Any) -> None:
            super().__init_subclass__(**kwargs)
            cls.tag = tag

    class Made(Tagged, Base, tag="made"):
        def own_class(self) -> type:
            return __class__  # type: ignore[name-defined, no-any-return]

    assert Made.tag == "made"
    assert Made().own_class() is Made


def test_a_class_can_be_made_with_type() -> None:
    metaclass: Any = type(Workflow)

    made = metaclass(
        "Made",
        (Base,),
        {"__module__": __name__, "ship": step(lambda workflow: "shipped"), "old": removed_step()},
    )

    assert made.steps.names == ("ship", "old")
    assert made().ship() == "shipped"


def test_a_class_of_the_same_module_and_name_takes_the_place_of_its_predecessor() -> None:
    source = """
        class Made(Base):
            former_types = ["testapp.Older"]
            @step
            def ship(self): ...
    """
    first = define(source)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = define(source)

    assert first is not second
    assert registry.get("testapp.Made") is second
    assert registry.get("testapp.Older") is second
    assert apps.all_models["testapp"]["made"] is second


def test_a_class_that_becomes_abstract_is_no_type_any_more() -> None:
    define("class Made(Base): pass")

    define(
        """
        class Made(Base):
            class Meta(Base.Meta):
                abstract = True
        """
    )

    assert registry.get("testapp.Made") is None


def test_a_class_that_django_refuses_leaves_its_predecessor() -> None:
    good = define("class Made(Base): pass")

    class Refusing:
        def __init_subclass__(cls, **kwargs: Any) -> None:
            raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        define("class Made(Refusing, Base): pass", Refusing=Refusing)

    assert registry.get("testapp.Made") is good
    assert apps.all_models["testapp"]["made"] is good


def test_bases_without_an_order_are_refused_by_python() -> None:
    class Parent(Base):
        pass

    with pytest.raises(TypeError, match="MRO"):
        define("class Made(Base, Parent): pass", Parent=Parent)


# -- class attributes


@pytest.mark.parametrize(("value", "model"), [("testapp.Order", Order), (Order, Order), (None, None)])
def test_the_hero_model_is_a_model_or_its_name(value: Any, model: Any) -> None:
    cls = define("class Made(Base): hero_model = value", value=value)

    assert cls._geneva.resolve_hero_model() is model


def test_a_hero_model_that_is_not_installed_is_found_out_when_it_is_needed() -> None:
    cls = define("class Made(Base): hero_model = 'testapp.Gone'")

    with pytest.raises(
        StepConfigurationError, match=r"testapp\.Made: hero_model='testapp\.Gone'.*INSTALLED_APPS"
    ):
        cls._geneva.resolve_hero_model()


def test_class_attributes_are_inherited_and_can_be_reset() -> None:
    class Mixin:
        job_options = {"queue": "mixed", "wait": timedelta(1)}

    class Parent(Base):
        hero_model: ClassVar[Any] = Ticket
        may_proceed_without_hero = True
        job_options = {"queue": "mail"}

    class Child(Parent):
        pass

    class Reset(Parent):
        hero_model: ClassVar[Any] = None
        may_proceed_without_hero = False
        job_options: dict[str, Any] = {}

    class Grandchild(Reset):
        pass

    class Mixed(Mixin, Parent):
        pass

    class MixedLater(Parent, Mixin):
        pass

    assert Child._geneva.hero_model is Ticket
    assert Child._geneva.may_proceed_without_hero
    assert Child._geneva.job_options == {"queue": "mail"}
    for cls in (Reset, Grandchild):
        assert cls._geneva.hero_model is None
        assert not cls._geneva.may_proceed_without_hero
        assert cls._geneva.job_options == {}
    assert Mixed._geneva.job_options == {"queue": "mixed", "wait": timedelta(1)}
    assert MixedLater._geneva.job_options == {"queue": "mail"}


@pytest.mark.django_db
def test_job_options_of_a_class_do_not_hide_those_of_its_rows() -> None:
    class Mixin:
        job_options = {"queue": "mixed"}

    class Made(Mixin, Base):
        may_proceed_without_hero = True
        job_options = {"queue": "mail"}

        @step
        def ship(self) -> None: ...

    class Mixed(Mixin, Base):
        may_proceed_without_hero = True

        @step
        def ship(self) -> None: ...

    for cls in (Made, Mixed):
        row = cls.start(job_options={"priority": 3})
        assert cls.objects.defer("job_options").get(pk=row.pk).job_options == {"priority": 3}
        assert cls().job_options is None


@pytest.mark.parametrize("hook", ["before_step", "after_step", "around_step"])
def test_a_class_knows_which_hooks_it_overrides(hook: str) -> None:
    @contextmanager
    def around(self: Any, execution: Any) -> Iterator[None]:
        yield

    made = define(f"class Made(Base): {hook} = hook", hook=around)
    mixin = type("Mixin", (), {hook: lambda self, execution: None})
    mixed = define("class Mixed(Mixin, Base): pass", Mixin=mixin)
    child = define("class Child(Made): pass", Made=made)

    for cls in (made, mixed, child):
        assert cls._geneva.hooks == {hook}
        assert getattr(cls._geneva, f"has_{hook}")
    assert Base._geneva.hooks == set()


def test_the_base_class_has_no_steps_and_is_no_type() -> None:
    assert Workflow._geneva.is_base
    assert not Workflow._geneva.is_startable
    assert len(Workflow.steps) == 0
    assert registry.get("geneva_drive.Workflow") is None
    assert Workflow not in registry.all()

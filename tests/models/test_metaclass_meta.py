"""The options of a workflow class's Meta: its own, inherited, and refused."""

from __future__ import annotations

from typing import Any

import pytest

from geneva_drive import StepConfigurationError, Workflow, step
from geneva_drive.definition.registry import registry
from tests.definition.support import Base, define

pytestmark = pytest.mark.usefixtures("classes_forgotten")


def test_a_class_keeps_its_own_options() -> None:
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


def test_meta_is_inherited_from_an_abstract_class_except_abstract() -> None:
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

"""From the type in a row to a class, and back."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from geneva_drive import StepConfigurationError
from geneva_drive.definition.class_definition import ClassDefinition
from geneva_drive.definition.registry import Registry


def made(
    label: str, *former: str, bases: tuple[type, ...] = (), module: str = "shop.workflows", **more: Any
) -> Any:
    """Return a class that can be registered."""
    definition = ClassDefinition(label=label, former_types=former, **more)
    return type(label.split(".")[1], bases, {"__module__": module, "_geneva": definition})


def accept(registry: Registry, cls: Any) -> None:
    definition = cls._geneva
    registry.check(
        definition.label, definition.former_types, module=cls.__module__, path=f"new {cls.__name__}"
    )
    registry.register(cls)


def test_a_class_is_found_by_its_current_and_former_types() -> None:
    registry = Registry()
    order = made("shop.Order", "shop.Purchase", "old.Order")
    accept(registry, order)

    assert registry.get("shop.Order") is order
    assert registry.get("shop.Purchase") is order
    assert registry.get("old.Order") is order


@pytest.mark.parametrize(
    "label",
    [
        "os.system",
        "builtins.eval",
        "shop.order",
        "Order",
        "shop.Order ",
        "",
        None,
        "shop.Order.steps",
        "__class__",
    ],
)
def test_any_other_type_resolves_to_nothing(label: str | None) -> None:
    registry = Registry()
    accept(registry, made("shop.Order"))

    assert "os" in sys.modules
    assert registry.get(label) is None


def test_all_lists_the_classes_by_label() -> None:
    registry = Registry()
    ship, order = made("shop.Ship"), made("shop.Order")
    accept(registry, ship)
    accept(registry, order)

    assert registry.all() == (order, ship)


def test_labels_include_former_types_and_subclasses() -> None:
    registry = Registry()
    shared = made("shop.Shared", is_abstract=True)
    order = made("shop.Order", "shop.Purchase", bases=(shared,))
    rush = made("shop.Rush", "shop.Hurry", bases=(order,))
    other = made("shop.Other")
    for cls in (order, rush, other):
        accept(registry, cls)

    assert registry.labels_for(rush) == ("shop.Hurry", "shop.Rush")
    assert registry.labels_for(order) == ("shop.Hurry", "shop.Order", "shop.Purchase", "shop.Rush")
    assert registry.labels_for(shared) == registry.labels_for(order)
    assert registry.labels_for(other) == ("shop.Other",)


def test_a_class_with_the_same_module_and_name_replaces_its_predecessor_and_its_former_types() -> None:
    registry = Registry()
    accept(registry, made("shop.Order", "shop.Purchase"))
    successor = made("shop.Order", "shop.Sale")
    accept(registry, successor)

    assert registry.get("shop.Order") is successor
    assert registry.get("shop.Sale") is successor
    assert registry.get("shop.Purchase") is None
    assert registry.all() == (successor,)


@pytest.mark.parametrize(
    "late",
    [
        made("shop.Order", module="shop.more"),
        made("shop.Purchase"),
        made("shop.Sale", "shop.Order"),
        made("shop.Sale", "shop.Purchase"),
    ],
    ids=["same type", "type that was another's", "former type that is another's", "former type of both"],
)
def test_two_classes_for_one_type_are_refused_naming_both(late: Any) -> None:
    registry = Registry()
    order = made("shop.Order", "shop.Purchase")
    accept(registry, order)

    with pytest.raises(StepConfigurationError) as caught:
        accept(registry, late)

    assert f"new {late.__name__}" in str(caught.value)
    assert "shop.workflows.Order" in str(caught.value)
    assert registry.all() == (order,)


def test_a_discarded_type_can_be_registered_again() -> None:
    registry = Registry()
    accept(registry, made("shop.Order", "shop.Purchase"))
    registry.discard("shop.Order")
    registry.discard("shop.Order")
    purchase = made("shop.Purchase", module="shop.more")
    accept(registry, purchase)

    assert registry.get("shop.Order") is None
    assert registry.get("shop.Purchase") is purchase


def test_threads_can_register_while_others_read() -> None:
    registry = Registry()
    base = made("shop.Base", is_abstract=True)
    classes = [made(f"shop.W{number}", f"shop.Old{number}", bases=(base,)) for number in range(200)]
    errors: list[BaseException] = []
    state = SimpleNamespace(done=False)

    def look() -> None:
        try:
            while not state.done:
                registry.labels_for(base)
                registry.get("shop.Old1")
        except BaseException as error:  # noqa: BLE001 - told by the assertion below
            errors.append(error)

    lookers = [threading.Thread(target=look) for _ in range(2)]
    for looker in lookers:
        looker.start()
    for cls in classes:
        accept(registry, cls)
    state.done = True
    for looker in lookers:
        looker.join()

    assert errors == []
    assert len(registry.labels_for(base)) == 400


@pytest.mark.parametrize(
    ("definition", "startable"),
    [
        (ClassDefinition("shop.Order"), True),
        (ClassDefinition("shop.Order", is_abstract=True), False),
        (ClassDefinition("geneva_drive.Workflow", is_base=True), False),
    ],
)
def test_abstract_classes_and_the_base_cannot_be_started(
    definition: ClassDefinition, startable: bool
) -> None:
    assert definition.is_startable is startable

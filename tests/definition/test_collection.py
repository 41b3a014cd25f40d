"""Looking up steps and their neighbors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from geneva_drive.definition.collection import StepCollection, StepDefinition
from geneva_drive.exceptions import StepNotDefinedError

STEPS = StepCollection(
    [
        StepDefinition("grave", removed=True),
        StepDefinition("first"),
        StepDefinition("pit", removed=True),
        StepDefinition("hole", removed=True),
        StepDefinition("second", formerly=("zweite", "deuxieme")),
        StepDefinition("tomb", removed=True),
    ]
)


def name_of(definition: StepDefinition | None) -> str | None:
    return None if definition is None else definition.name


@pytest.mark.parametrize(
    ("name", "following"),
    [
        (None, "first"),
        ("grave", "first"),
        ("first", "second"),
        ("pit", "second"),
        ("hole", "second"),
        ("second", None),
        ("zweite", None),
        ("tomb", None),
    ],
)
def test_next_after_skips_gravestones(name: str | None, following: str | None) -> None:
    assert name_of(STEPS.next_after(name)) == following


@pytest.mark.parametrize(
    ("name", "preceding"),
    [
        ("grave", None),
        ("first", None),
        ("pit", "first"),
        ("hole", "first"),
        ("second", "first"),
        ("deuxieme", "first"),
        ("tomb", "second"),
    ],
)
def test_previous_before_skips_gravestones(name: str, preceding: str | None) -> None:
    assert name_of(STEPS.previous_before(name)) == preceding


def test_it_is_an_ordered_container_of_names() -> None:
    assert [each.name for each in STEPS] == ["grave", "first", "pit", "hole", "second", "tomb"]
    assert [each.name for each in reversed(STEPS)] == ["tomb", "second", "hole", "pit", "first", "grave"]
    assert STEPS.names == tuple(each.name for each in STEPS)
    assert len(STEPS) == 6
    assert [each.name for each in STEPS.runnable] == ["first", "second"]
    assert [each.name for each in STEPS.removed] == ["grave", "pit", "hole", "tomb"]
    assert repr(STEPS) == (
        "<StepCollection: grave (removed), first, pit (removed), hole (removed), second, tomb (removed)>"
    )


def test_it_finds_present_names() -> None:
    assert "first" in STEPS
    assert "pit" in STEPS
    assert "zweite" not in STEPS
    assert STEPS["pit"].removed
    assert STEPS.get("first") is STEPS["first"]


@pytest.mark.parametrize("name", ["__class__", "names", "next_after", "os.system", "", None, 0, ["first"]])
def test_resolve_accepts_any_value_and_returns_a_step_or_none(name: object) -> None:
    assert name not in STEPS
    if name is None or isinstance(name, str):
        assert STEPS.resolve(name) is None
    if isinstance(name, str):
        assert STEPS.get(name) is None
        with pytest.raises(KeyError):
            STEPS[name]


@pytest.mark.parametrize(
    ("name", "current"),
    [("second", "second"), ("zweite", "second"), ("deuxieme", "second"), ("pit", "pit"), ("nobody", None)],
)
def test_resolve_follows_former_names(name: str, current: str | None) -> None:
    assert name_of(STEPS.resolve(name)) == current


@pytest.mark.parametrize("look_up", [STEPS.next_after, STEPS.previous_before])
def test_neighbors_of_an_unknown_step_are_an_error(look_up: object) -> None:
    with pytest.raises(StepNotDefinedError, match=r"'nobody'.*grave, first, pit"):
        look_up("nobody")  # type: ignore[operator]


def test_an_empty_collection_has_no_first_step() -> None:
    empty = StepCollection()

    assert len(empty) == 0
    assert empty.next_after(None) is None
    with pytest.raises(StepNotDefinedError, match="none"):
        empty.next_after("first")


@pytest.mark.parametrize("attribute", ["names", "runnable", "new"])
def test_it_cannot_be_changed(attribute: str) -> None:
    steps = StepCollection([StepDefinition("first")])

    with pytest.raises(AttributeError, match="cannot be changed"):
        setattr(steps, attribute, ())
    with pytest.raises(AttributeError, match="cannot be changed"):
        delattr(steps, attribute)
    assert steps.names == ("first",)


@given(st.lists(st.booleans(), max_size=12))
def test_neighbors_are_the_nearest_runnable_steps(removed: list[bool]) -> None:
    steps = StepCollection(StepDefinition(f"s{i}", removed=each) for i, each in enumerate(removed))
    definitions = list(steps)

    for index, definition in enumerate(definitions):
        after = next((each for each in definitions[index + 1 :] if each.is_runnable), None)
        before = next((each for each in reversed(definitions[:index]) if each.is_runnable), None)
        assert steps.next_after(definition.name) is after
        assert steps.previous_before(definition.name) is before
    assert steps.next_after(None) is next(iter(steps.runnable), None)

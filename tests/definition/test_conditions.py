"""skip_if, run_if and cancel_if: accepted values and results."""

from __future__ import annotations

from typing import Any

import pytest

from geneva_drive.definition.conditions import Condition
from tests.definition.support import define


class Row:
    """Stands in for a workflow: conditions use only methods and attributes."""

    withdrawn = True

    def yes(self) -> bool:
        return True

    def nothing(self) -> None:
        return None

    def raising(self) -> bool:
        raise LookupError("gone")

    async def later(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        (True, True),
        (False, False),
        ("yes", True),
        ("nothing", False),
        (lambda workflow: workflow.withdrawn, True),
        (lambda workflow: [], False),
        (lambda workflow: [0], True),
    ],
)
@pytest.mark.parametrize("negated", [False, True])
def test_a_condition_returns_true_or_false(test: Any, holds: bool, negated: bool) -> None:
    assert Condition(test, negated=negated).evaluate(Row()) is (holds is not negated)


def test_an_error_in_a_condition_is_propagated() -> None:
    with pytest.raises(LookupError, match="gone"):
        Condition("raising").evaluate(Row())


@pytest.mark.parametrize("test", ["later", lambda workflow: workflow.later()])
def test_an_awaitable_result_is_refused(test: Any) -> None:
    # A coroutine is always true, so the workflow would be canceled or the step skipped each time.
    with pytest.raises(TypeError, match=r"condition 'check' of Row returned an awaitable"):
        Condition(test, name="check").evaluate(Row())


@pytest.mark.parametrize(
    ("written", "skipped"),
    [
        ("skip_if='yes'", True),
        ("run_if='yes'", False),
        ("skip_if=lambda workflow: workflow.yes()", True),
        ("run_if=lambda workflow: workflow.yes()", False),
        ("skip_if=yes", True),
        ("skip_if=True", True),
        ("run_if=False", True),
    ],
)
def test_a_step_is_skipped_if_its_condition_is_true(written: str, skipped: bool) -> None:
    cls = define(f"""
        class Made(Base):
            def yes(self):
                return True
            @step({written})
            def ship(self): ...
    """)

    assert cls.steps["ship"].conditional
    assert cls.steps["ship"].skip_if.evaluate(cls()) is skipped


@pytest.mark.parametrize("written", ["skip_if=False", "run_if=True", "skip_if=None", "run_if=None"])
def test_a_constant_false_condition_is_not_checked(written: str) -> None:
    cls = define(f"""
        class Made(Base):
            @step({written})
            def ship(self): ...
    """)

    assert not cls.steps["ship"].conditional


def test_cancel_conditions_come_in_order_inherited_first() -> None:
    cls = define("""
        class Parent(Base):
            @cancel_if
            def withdrawn(self):
                return True
        class Made(Parent):
            late = cancel_if(lambda workflow: False)
            broke = cancel_if("is_broke")
            def is_broke(self):
                return True
    """)

    conditions = cls._geneva.cancel_conditions

    assert [each.name for each in conditions] == ["withdrawn", "late", "is_broke"]
    assert [each.evaluate(cls()) for each in conditions] == [True, False, True]
    assert len(cls.__mro__[1]._geneva.cancel_conditions) == 1


def test_a_subclass_can_override_the_method_of_a_condition() -> None:
    cls = define("""
        class Parent(Base):
            @cancel_if
            def withdrawn(self):
                return True
            @step(skip_if="no_email")
            def ship(self): ...
            def no_email(self):
                return True
        class Made(Parent):
            def withdrawn(self):
                return not super().withdrawn()
            def no_email(self):
                return False
    """)

    assert not cls._geneva.cancel_conditions[0].evaluate(cls())
    assert not cls.steps["ship"].skip_if.evaluate(cls())


def test_the_method_of_a_condition_can_still_be_called() -> None:
    cls = define("""
        class Made(Base):
            @cancel_if
            def withdrawn(self):
                return "withdrawn"
    """)

    assert cls().withdrawn() == "withdrawn"

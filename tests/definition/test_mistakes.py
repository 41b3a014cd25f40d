"""Classes that cannot work are refused when they are created, with the place, the value and a hint."""

from __future__ import annotations

import contextlib
import functools
import textwrap
from typing import Any

import pytest
from django.db import transaction

from geneva_drive import StepConfigurationError
from tests.definition.support import FILE, define


def keeping_arguments(function: Any) -> Any:
    """Stand for any decorator that wraps."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


class Mistake:
    """A wrong class body, and the expected error.

    `body` is the body of a class `Made`, or whole classes of which the last, `Made`, is wrong. The error names
    `step`, contains `says` and points to `line`. In a body, lines count from 2, because the class statement is
    put before it.
    """

    def __init__(self, body: str, *says: str, step: str = "ship", line: int = 2) -> None:
        self.body = textwrap.dedent(body).strip("\n")
        self.says = says
        self.step = step
        self.line = line

    @property
    def source(self) -> str:
        if self.body.startswith("class"):
            return self.body
        return "class Made(Base):\n" + textwrap.indent(self.body, "    ")


def option(written: str, *says: str) -> Mistake:
    """Return a step with a wrong option."""
    return Mistake(f"@step({written})\ndef ship(self): ...", *says)


OPTIONS = {
    "a wait that is a number": option("wait=30", "wait=30", "timedelta(minutes=5)"),
    "a wait that is not a number": option("wait=float('nan')", "wait=nan", "timedelta"),
    "a wait that is infinite": option("wait=float('inf')", "wait=inf", "timedelta"),
    "a wait that is True": option("wait=True", "wait=True", "timedelta"),
    "a wait that is negative": option("wait=timedelta(seconds=-1)", "negative", "zero or more"),
    "a wait that overflows the calendar": option("wait=timedelta.max", "timedelta(days=999999999", "shorter"),
    "a wait of more than a century": option("wait=timedelta(days=36526)", "timedelta(days=36526)", "shorter"),
    "a wait that is a signal's name": option("wait='parcel_scanned'", "wait_for='parcel_scanned'"),
    "an unknown option": option("wiat=1", "wiat=1", "skip_if"),
    "a name": option("name='send'", "name='send'", "not an option"),
    "a positional name": option("'send'", "step('send')", "takes its name from the method"),
    "before and after": Mistake(
        """
        @step
        def first(self): ...
        @step(before="first", after="first")
        def ship(self): ...
        """,
        "before='first'",
        "after='first'",
        "Keep one",
        line=4,
    ),
    "before what comes later": Mistake(
        """
        @step(before="last")
        def ship(self): ...
        @step
        def last(self): ...
        """,
        "before='last'",
        "none",
    ),
    "after nobody": Mistake(
        """
        @step
        def first(self): ...
        grave = removed_step()
        @step(after="nobody")
        def ship(self): ...
        """,
        "after='nobody'",
        "There are: first, grave",
        line=5,
    ),
    "after a former name": Mistake(
        """
        @step(formerly=["old"])
        def first(self): ...
        @step(after="old")
        def ship(self): ...
        """,
        "after='old'",
        "There are: first",
        line=4,
    ),
    "after itself, new": option("after='ship'", "after='ship'", "none"),
    "after itself, inherited": Mistake(
        """
        class Parent(Base):
            @step
            def ship(self): ...
        class Made(Parent):
            @step(after="ship")
            def ship(self): ...
        """,
        "after='ship'",
        "itself",
        line=5,
    ),
    "before a function": Mistake(
        """
        @step
        def first(self): ...
        @step(before=first)
        def ship(self): ...
        """,
        "before=",
        "name as a text",
        line=4,
    ),
    "skip_if and run_if": option("skip_if=False, run_if=True", "skip_if=False", "run_if=True", "Keep one"),
    "skip_if of nobody": option("skip_if='no_email'", "skip_if='no_email'", "Define it"),
    "skip_if of a number": option("skip_if=1", "skip_if=1", "a callable of the workflow"),
    "skip_if of a class": option("skip_if=dict", "skip_if=<class 'dict'>", "a callable of the workflow"),
    "skip_if of too few arguments": option("skip_if=lambda: True", "(workflow)"),
    "skip_if of too many arguments": option("run_if=lambda workflow, more: True", "(workflow, more)"),
    "skip_if of a step": Mistake(
        """
        @step(skip_if="first")
        def ship(self): ...
        @step
        def first(self): ...
        """,
        "'first' is a step",
        "only looks",
    ),
    "skip_if of an async method": Mistake(
        """
        @step(skip_if="slowly")
        def ship(self): ...
        async def slowly(self): ...
        """,
        "skip_if='slowly'",
        "async",
        "plain method",
    ),
    "skip_if of a method with arguments": Mistake(
        """
        @step(skip_if="judge")
        def ship(self): ...
        def judge(self, law): ...
        """,
        "skip_if='judge'",
        "(self, law)",
    ),
    "skip_if of a property": Mistake(
        """
        @step(skip_if="no_email")
        def ship(self): ...
        @property
        def no_email(self): ...
        """,
        "skip_if='no_email'",
        "property",
        "plain method",
    ),
    "formerly a text": option("formerly='old'", "formerly='old'", "formerly=['old']"),
    "formerly a number": option("formerly=3", "formerly=3", "list of names"),
    "formerly no name": option("formerly=['old', 'o l d']", "'o l d'", "Correct it"),
    "formerly its own name": option("formerly=['ship']", "formerly='ship'", "Take one of them out"),
    "formerly another step's name": Mistake(
        """
        @step(formerly=["first"])
        def ship(self): ...
        first = removed_step()
        """,
        "formerly='first'",
        "Take one of them out",
    ),
    "formerly what another step was": Mistake(
        """
        @step(formerly=["old"])
        def first(self): ...
        @step(formerly=["old"])
        def ship(self): ...
        """,
        "formerly='old'",
        "'first'",
        line=4,
    ),
    "atomic neither way": option("atomic='yes'", "atomic='yes'", "True nor False"),
    "a queue without a name": option("queue=''", "queue=''", "queue='mail'"),
    "a queue with spaces around": option("queue=' mail'", "queue=' mail'"),
    "a queue with a comma": option("queue='a,b'", "queue='a,b'", "comma"),
    "a queue that is a number": option("queue=1", "queue=1", "text"),
    "a queue with a long name": option("queue=101 * 'q'", "100 characters", "Shorten"),
    "a priority that is True": option("priority=True", "priority=True", "lower runs first"),
    "a priority that is a fraction": option("priority=1.0", "priority=1.0", "lower runs first"),
    "a priority that does not fit": option("priority=2**31", "priority=2147483648", "2147483647"),
    "an unknown action on a crash": option(
        "on_crash='explode'", "on_crash='explode'", "reattempt, pause, cancel"
    ),
}

FUNCTIONS = {
    "nothing decorated": Mistake("ship = step(priority=1)", "decorates nothing", "@step(…)"),
    "a number decorated": Mistake("ship = step(3)", "3 is not a function"),
    "a class decorated": Mistake("@step\nclass ship: ...", "is not a function"),
    "without self": Mistake("@step\ndef ship(): ...", "is called with (self)"),
    "with more than self": Mistake("@step\ndef ship(self, iteration): ...", "(self, iteration)"),
    "a generator": Mistake("@step\ndef ship(self): yield", "generator", "Take the yield out"),
    "an async generator": Mistake("@step\nasync def ship(self): yield", "generator", "Take the yield out"),
    "a static method": Mistake("@step\n@staticmethod\ndef ship(self): ...", "staticmethod", "plain method"),
    "a class method": Mistake("@step\n@classmethod\ndef ship(cls): ...", "classmethod", "plain method"),
    "a property": Mistake("@step\n@property\ndef ship(self): ...", "property", "plain method"),
    "twice a step": Mistake("@step\n@step\ndef ship(self): ...", "already", line=2),
    "a step and a condition": Mistake("@step\n@cancel_if\ndef ship(self): ...", "already", line=2),
    "another decorator above": Mistake(
        "@keeping_arguments\n@step\ndef ship(self): ...", "Put it below", line=2
    ),
    "a decorator with an optional argument above": Mistake(
        "@atomic\n@step\ndef ship(self): ...", "Put it below", line=2
    ),
    "a static method above": Mistake("@staticmethod\n@step\ndef ship(self): ...", "Put it below", line=2),
    "a property above": Mistake("@property\n@step\ndef ship(self): ...", "Put it below", line=2),
    "a cached property above": Mistake(
        "@cached_property\n@step(priority=1)\ndef ship(self): ...", "Put it below", line=2
    ),
}

NAMES = {
    "two steps": Mistake(
        """
        @step
        def ship(self): ...
        @step
        def ship(self): ...
        """,
        "taken twice",
        f"first at {FILE}:2",
        "Rename one",
        line=4,
    ),
    "a step and a gravestone": Mistake(
        """
        @step
        def ship(self): ...
        ship = removed_step()
        """,
        "taken twice",
        line=4,
    ),
    "a step and a plain method after it": Mistake(
        """
        @step
        def ship(self): ...
        def ship(self): ...
        """,
        "taken twice",
    ),
    "a step and a plain method before it": Mistake(
        """
        def ship(self): ...
        @step
        def ship(self): ...
        """,
        "taken twice",
        line=3,
    ),
    "a step and a condition": Mistake(
        """
        @step
        def ship(self): ...
        @cancel_if
        def ship(self): ...
        """,
        "taken twice",
        line=4,
    ),
    "a step and a member of a series": Mistake(
        """
        @step
        def polls_2(self): ...
        polls = step.series(lambda workflow: None, waits=[timedelta(0)] * 2)
        """,
        "series 'polls'",
        "Rename one",
        step="polls_2",
        line=4,
    ),
    "a step where a condition is inherited": Mistake(
        """
        class Parent(Base):
            @cancel_if
            def ship(self): ...
        class Made(Parent):
            @step
            def ship(self): ...
        """,
        "inherited @cancel_if",
        "another name",
        line=5,
    ),
    "a condition where a step is inherited": Mistake(
        """
        class Parent(Base):
            @step
            def ship(self): ...
        class Made(Parent):
            @cancel_if
            def ship(self): ...
        """,
        "inherited step",
        "another name",
        line=5,
    ),
    "a plain method where a gravestone is inherited": Mistake(
        """
        class Parent(Base):
            ship = removed_step()
        class Made(Parent):
            def ship(self): ...
        """,
        "removed step",
        "@step above it",
    ),
    "no method where a step is inherited": Mistake(
        """
        class Parent(Base):
            @step
            def ship(self): ...
        class Made(Parent):
            ship = None
        """,
        "None is not a function",
        "ship = removed_step()",
    ),
    "a mixin's property where a step is inherited": Mistake(
        """
        class Parent(Base):
            @step
            def ship(self): ...
        class Mixin:
            @property
            def ship(self): ...
        class Made(Mixin, Parent):
            pass
        """,
        "property",
    ),
    "too long": Mistake(f"@step\ndef {'s' * 151}(self): ...", "150 characters", step="s" * 151),
    **{
        f"that of Workflow.{name}": Mistake(
            f"@step\ndef {name}(self): ...", f"hide Workflow.{name}", "another name", step=name
        )
        for name in (
            # its own actions, its columns, what Django adds, hooks, class attributes, what comes later
            *("cancel", "pause", "resume", "start", "reattempt", "finish", "save", "delete", "check"),
            *("state", "hero", "hero_id", "hero_type", "type", "job_options", "pk", "id"),
            *("objects", "executions", "get_state_display", "DoesNotExist", "_meta", "_state"),
            *("before_step", "after_step", "around_step"),
            *("steps", "_geneva", "hero_model", "exception_policies", "former_types"),
            *("received_signal", "signal", "logger", "current_execution", "__init__", "__call__"),
        )
    },
}

GRAVESTONES = {
    "a positional name": Mistake("ship = removed_step('ship')", "removed_step('ship')", "parentheses empty"),
    "a named name": Mistake("ship = removed_step(name='ship')", "removed_step(name='ship')", "empty"),
    "an option": Mistake(
        "ship = removed_step(wait=timedelta(1))", "wait=datetime.timedelta(days=1)", "empty"
    ),
    "a name that is taken": Mistake("save = removed_step()", "hide Workflow.save", step="save"),
}

SERIES = {
    "without waits": Mistake("polls = step.series(check, waits=[])", "at least one", step="polls"),
    "waits that are a duration": Mistake(
        "polls = step.series(check, waits=timedelta(1))",
        "waits=datetime.timedelta(days=1)",
        "list",
        step="polls",
    ),
    "waits that are a text": Mistake("polls = step.series(check, waits='1h')", "waits='1h'", step="polls"),
    "waits that are numbers": Mistake(
        "polls = step.series(check, waits=[timedelta(0), 30])", "waits[1]=30", "timedelta", step="polls"
    ),
    "a negative wait": Mistake(
        "polls = step.series(check, waits=[timedelta(-1)])", "waits[0]=", "zero or more", step="polls"
    ),
    "a wait beside waits": Mistake(
        "polls = step.series(check, waits=[timedelta(0)], wait=timedelta(1))",
        "wait=",
        "Leave it out",
        step="polls",
    ),
    "formerly": Mistake(
        "polls = step.series(check, waits=[timedelta(0)], formerly=['a'])", "formerly=['a']", step="polls"
    ),
    "one argument too many": Mistake(
        "polls = step.series(check, 5, waits=[timedelta(0)])", "5 is one argument too many", step="polls"
    ),
    "an unknown option": Mistake(
        "polls = step.series(check, waits=[timedelta(0)], wiat=1)", "wiat=1", step="polls_1"
    ),
    "no function": Mistake("polls = step.series('check', waits=[timedelta(0)])", "'check'", step="polls_1"),
    "a step as function": Mistake(
        """
        @step
        def ask(self): ...
        polls = step.series(ask, waits=[timedelta(0)])
        """,
        "already",
        "plain function",
        step="polls_1",
        line=4,
    ),
    "the name of an attribute": Mistake(
        "x = step.series(check, waits=[timedelta(0)])\nx_1 = 5", "series 'x'", step="x_1"
    ),
    "fewer steps than the series of the parent": Mistake(
        """
        class Parent(Base):
            polls = step.series(lambda workflow: None, waits=[timedelta(0)] * 3)
        class Made(Parent):
            polls = step.series(lambda workflow: None, waits=[timedelta(0)] * 2)
        """,
        "polls_3 = removed_step()",
        step="polls_3",
    ),
}

CONDITIONS = {
    "of no method": Mistake("ship = cancel_if('gone')", "cancel_if='gone'", "Define it"),
    "of a boolean": Mistake("ship = cancel_if(True)", "cancel_if takes one callable"),
    "of nothing": Mistake("ship = cancel_if()", "cancel_if takes one callable"),
    "of two": Mistake("ship = cancel_if(check, check)", "cancel_if takes one callable"),
    "of an option": Mistake("ship = cancel_if(check, reason='x')", "cancel_if takes one callable"),
    "of a number": Mistake("ship = cancel_if(3)", "cancel_if=3"),
    "of a generator": Mistake("@cancel_if\ndef ship(self): yield", "generator"),
    "of an async method": Mistake("@cancel_if\nasync def ship(self): ...", "async", "plain method"),
    "of a method with arguments": Mistake("@cancel_if\ndef ship(self, law): ...", "(self, law)"),
    "of a step": Mistake("@cancel_if\n@step\ndef ship(self): ...", "is a step"),
    "of a static method": Mistake("@cancel_if\n@staticmethod\ndef ship(self): ...", "staticmethod"),
    "naming a step": Mistake(
        "@step\ndef first(self): ...\nship = cancel_if('first')", "'first' is a step", line=4
    ),
    "below another decorator": Mistake(
        "@keeping_arguments\n@cancel_if\ndef ship(self): ...", "Put it below", line=3
    ),
    "with a name that is taken": Mistake(
        "@cancel_if\ndef cancel(self): ...", "hide Workflow.cancel", step="cancel"
    ),
    "taken away by a subclass": Mistake(
        """
        class Parent(Base):
            @cancel_if
            def ship(self): ...
        class Made(Parent):
            ship = None
        """,
        "None is not a function",
    ),
}

ALL = {
    f"{group}: {name}": mistake
    for group, mistakes in {
        "option": OPTIONS,
        "function": FUNCTIONS,
        "name": NAMES,
        "gravestone": GRAVESTONES,
        "series": SERIES,
        "condition": CONDITIONS,
    }.items()
    for name, mistake in mistakes.items()
}


@pytest.mark.parametrize("mistake", ALL.values(), ids=ALL.keys())
def test_a_mistake_is_refused_with_its_place_and_a_hint(mistake: Mistake) -> None:
    with pytest.raises(StepConfigurationError) as caught:
        define(
            mistake.source,
            keeping_arguments=keeping_arguments,
            atomic=transaction.atomic,
            cached_property=functools.cached_property,
            check=lambda workflow: None,
        )

    message = str(caught.value)
    assert message.startswith("shop.workflows.Made, ")
    for part in (repr(mistake.step), *mistake.says, f"({FILE}:{mistake.line})"):
        assert part in message


def test_a_refused_class_leaves_no_trace() -> None:
    good = define("""
        class Made(Base):
            @step
            def ship(self): ...
    """)

    with contextlib.suppress(StepConfigurationError):
        define("""
            class Made(Base):
                @step(wait=-1)
                def ship(self): ...
        """)

    from django.apps import apps

    from geneva_drive.definition.registry import registry

    assert registry.get("testapp.Made") is good
    assert apps.all_models["testapp"]["made"] is good

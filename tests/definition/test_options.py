"""Job options: which exist, and which layer takes precedence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from geneva_drive import StepConfigurationError
from geneva_drive.definition.options import merge, validate

MOMENT = datetime(2031, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"queue": "mail"},
        {"priority": 0},
        {"priority": -(2**31) + 1},
        {"wait": timedelta(0)},
        {"queue": "q" * 100, "priority": 5, "wait": timedelta(days=36525)},
    ],
)
def test_known_options_are_accepted(options: dict[str, Any]) -> None:
    assert validate(options, "here") == options
    assert validate(options, "here") is not options


@override_settings(USE_TZ=True)
def test_a_moment_is_accepted() -> None:
    assert validate({"wait_until": MOMENT}, "here") == {"wait_until": MOMENT}


def test_none_means_not_given() -> None:
    assert validate(None, "here") == {}
    assert validate({"queue": None, "priority": 1}, "here") == {"priority": 1}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"quue": "mail"}, r"'quue' is not a job option.*queue, priority, wait, wait_until"),
        ({1: 2}, r"1 is not a job option"),
        ("mail", r"'mail' is not a dict"),
        ([("queue", "mail")], r"is not a dict"),
        ({"queue": ""}, r"queue=''"),
        ({"queue": 7}, r"queue=7"),
        ({"queue": "a\0b"}, r"NUL"),
        ({"priority": True}, r"priority=True"),
        ({"priority": "1"}, r"priority='1'"),
        ({"priority": 2.0}, r"priority=2\.0"),
        ({"priority": 10**10}, r"out of range"),
        ({"wait": 5}, r"wait=5"),
        ({"wait": timedelta(-1)}, r"negative"),
        ({"wait_until": "tomorrow"}, r"wait_until='tomorrow'.*datetime"),
        ({"wait_until": timedelta(1)}, r"wait_until=.*as wait="),
        ({"wait": timedelta(1), "wait_until": MOMENT}, r"wait and wait_until"),
    ],
)
@override_settings(USE_TZ=True)
def test_other_options_are_refused_with_their_place(options: Any, says: str) -> None:
    with pytest.raises(StepConfigurationError, match=f"^OrderWorkflow.start.*{says}"):
        validate(options, "OrderWorkflow.start")


@pytest.mark.parametrize(
    ("use_tz", "moment", "says"), [(True, MOMENT.replace(tzinfo=None), "naive"), (False, MOMENT, "aware")]
)
def test_a_moment_must_be_aware_or_naive_like_the_project(use_tz: bool, moment: datetime, says: str) -> None:
    with override_settings(USE_TZ=use_tz), pytest.raises(StepConfigurationError, match=f"is {says}"):
        validate({"wait_until": moment}, "here")


@pytest.mark.parametrize(
    ("of_class", "of_instance", "of_step", "merged"),
    [
        (None, None, None, {}),
        ({"queue": "a"}, None, {}, {"queue": "a"}),
        ({"queue": "a"}, {"queue": "b"}, {}, {"queue": "b"}),
        ({"queue": "a"}, {"queue": "b"}, {"queue": "c"}, {"queue": "c"}),
        ({"queue": "a"}, {"priority": 1}, {"priority": 0}, {"queue": "a", "priority": 0}),
        ({"wait": 1}, {"wait_until": 2}, None, {"wait_until": 2}),
        ({"wait_until": 2}, None, {"wait": 1}, {"wait": 1}),
        ({"wait_until": 2}, None, {"priority": 1}, {"wait_until": 2, "priority": 1}),
    ],
)
def test_the_step_overrides_the_instance_which_overrides_the_class(
    of_class: Any, of_instance: Any, of_step: Any, merged: dict[str, Any]
) -> None:
    assert merge(of_class, of_instance, of_step) == merged


def test_merging_does_not_change_its_inputs() -> None:
    layer = {"wait_until": MOMENT}

    merge(layer, {"wait": timedelta(1)})

    assert layer == {"wait_until": MOMENT}

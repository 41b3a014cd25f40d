"""Flow control: BaseExceptions that end a step with a decision."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from geneva_drive.definition import flow

WORDS = [flow.Cancel, flow.Pause, flow.Skip, flow.Finish, flow.Reattempt, flow.Suspend]


@pytest.mark.parametrize("word", WORDS)
def test_except_exception_does_not_swallow_it(word: type[flow.FlowControl]) -> None:
    def body() -> None:
        try:
            raise word
        except Exception:  # noqa: BLE001 - what steps do
            pytest.fail("swallowed")

    with pytest.raises(word):
        body()


@pytest.mark.parametrize("word", WORDS)
def test_it_carries_a_reason(word: type[flow.FlowControl]) -> None:
    assert word(reason="out of stock").reason == "out of stock"
    assert word().reason == ""
    assert word().word == word.__name__.lower()


@pytest.mark.parametrize("word", [flow.Reattempt, flow.Suspend])
def test_a_wait_is_a_duration_of_zero_or_more(word: Any) -> None:
    assert word().wait == timedelta(0)
    assert word(wait=timedelta(minutes=5)).wait == timedelta(minutes=5)


@pytest.mark.parametrize("word", [flow.Reattempt, flow.Suspend])
@pytest.mark.parametrize(
    "wait",
    [5, 0.5, float("nan"), float("inf"), True, "1h", timedelta(seconds=-1), timedelta.max, timedelta.min],
)
def test_any_other_wait_is_refused(word: Any, wait: Any) -> None:
    with pytest.raises(ValueError, match=r"^wait="):
        word(wait=wait)


def test_a_reattempt_continues_unless_it_is_told_to_rewind() -> None:
    assert not flow.Reattempt().rewind
    assert flow.Reattempt(rewind=True).rewind


def test_unwrap_finds_flow_control_in_a_task_group() -> None:
    async def pausing() -> None:
        raise flow.Pause("later")

    async def waiting() -> None:
        await asyncio.Event().wait()

    async def body() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(waiting())
            group.create_task(pausing())

    with pytest.raises(BaseExceptionGroup) as caught:
        asyncio.run(body())

    found = flow.unwrap(caught.value)
    assert isinstance(found, flow.Pause)
    assert found.reason == "later"


PAUSE, SKIP = flow.Pause(), flow.Skip()


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (PAUSE, PAUSE),
        (ValueError(), None),
        (KeyboardInterrupt(), None),
        (BaseExceptionGroup("", [PAUSE]), PAUSE),
        (BaseExceptionGroup("", [BaseExceptionGroup("", [SKIP]), PAUSE]), SKIP),
        (BaseExceptionGroup("", [asyncio.CancelledError(), PAUSE]), PAUSE),
        (BaseExceptionGroup("", [PAUSE, ValueError()]), None),
        (BaseExceptionGroup("", [PAUSE, BaseExceptionGroup("", [SystemExit()])]), None),
        (BaseExceptionGroup("", [asyncio.CancelledError()]), None),
    ],
)
def test_unwrap_never_hides_a_real_error(error: BaseException, found: flow.FlowControl | None) -> None:
    assert flow.unwrap(error) is found

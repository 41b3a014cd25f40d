"""Whatever a step raises is recorded, on every database, and the workflow pauses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from geneva_drive import Workflow, step
from geneva_drive.definition.decisions import ErrorRecord
from geneva_drive.lifecycle import error_text
from geneva_drive.testing import assert_state
from tests.execution.support import Free, history, run, trace

pytestmark = pytest.mark.django_db


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text either")


class UnprintableOtherwise(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]  # noqa: PLE0307 - what is tried

    __repr__ = __str__


class Exiting(Exception):
    def __str__(self) -> str:
        raise SystemExit(1)


class TwoArguments(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(first)
        self.second = second


class Noted(Exception):
    pass


class HidingNotes(Exception):
    @property
    def __notes__(self) -> Any:  # type: ignore[override]
        raise LookupError("no notes")


def _deep(depth: int = 0) -> None:
    _deep(depth + 1)


def _chained() -> Exception:
    error: Exception = ValueError("root")
    for number in range(2000):
        outer = ValueError(f"link {number}")
        outer.__cause__ = error
        error = outer
    return error


def _circular() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def _noted() -> Exception:
    error = Noted("with notes")
    error.add_note("a note with \0 and \ud800")
    return error


def _raised(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


RAISED: dict[str, Callable[[], None]] = {
    "plain": _raised(ValueError("plain")),
    "empty": _raised(ValueError()),
    "str raises": _raised(Unprintable()),
    "str gives no text": _raised(UnprintableOtherwise()),
    "str exits": _raised(Exiting()),
    "NUL": _raised(ValueError("before\0after")),
    "lone surrogates": _raised(ValueError("a\ud800b\udfffc")),
    "emoji": _raised(ValueError("parcel \N{PARTY POPPER}\N{SMILING FACE WITH SUNGLASSES}")),
    "200 KB": _raised(ValueError("x" * 200_000)),
    "200 KB of emoji": _raised(ValueError("\N{PARTY POPPER}" * 200_000)),
    "deep recursion": _deep,
    "two arguments": _raised(TwoArguments("one", "two")),
    "bytes": _raised(ValueError(b"\xff\x00")),
    "group": _raised(ExceptionGroup("many", [ValueError("a\0"), ExceptionGroup("deep", [KeyError("b")])])),
    "long chain": _raised(_chained()),
    "circular chain": _raised(_circular()),
    "notes": _raised(_noted()),
    "notes that raise": _raised(HidingNotes("hm")),
    "non-ASCII class": _raised(type("Ünïcode", (Exception,), {})("ß")),
    "long class": _raised(type("X" * 400, (Exception,), {})("long")),
    "percent and braces": _raised(ValueError("100% {braces} %s %(x)s")),
}


class FailsAsTold(Free):
    @step
    def fails(self) -> None:
        trace[0]()

    @step
    def after(self) -> None:
        pass


def _run(kind: str) -> Workflow:
    trace.append(RAISED[kind])
    workflow = FailsAsTold.start()
    with pytest.raises(BaseException) as raised:  # noqa: PT011 - of every class
        run(workflow)
    assert not isinstance(raised.value, pytest.fail.Exception)
    return workflow


@pytest.mark.parametrize("kind", RAISED)
def test_every_exception_is_recorded_and_pauses_the_workflow(kind: str) -> None:
    workflow = _run(kind)

    assert history(workflow) == [("fails", "failed", "failed")]
    assert_state(workflow, "paused")
    assert (workflow.next_step_name, workflow.current_step_name) == ("fails", None)
    row = workflow.executions.get()
    assert row.finished_at is not None
    assert row.error_class
    for text in (row.error_class, row.error_message, row.error_traceback):
        assert text is not None
        assert "\0" not in text
        text.encode()
        assert len(text) <= 20_000


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("plain", "plain"),
        ("empty", ""),
        ("str raises", "<no message: Unprintable.__str__ raised RuntimeError>"),
        ("str gives no text", "<no message: UnprintableOtherwise.__str__ raised TypeError>"),
        ("str exits", "<no message: Exiting.__str__ raised SystemExit>"),
        ("NUL", "before\\x00after"),
        ("lone surrogates", "a\\ud800b\\udfffc"),
        ("emoji", "parcel \N{PARTY POPPER}\N{SMILING FACE WITH SUNGLASSES}"),
        ("two arguments", "one"),
        ("percent and braces", "100% {braces} %s %(x)s"),
    ],
)
def test_as_much_as_possible_of_the_message_is_kept(kind: str, message: str) -> None:
    assert _run(kind).executions.get().error_message == message


def test_a_traceback_shows_where_the_error_was_raised() -> None:
    row = _run("plain").executions.get()

    assert row.error_class == "builtins.ValueError"
    assert "in fails" in (row.error_traceback or "")
    assert (row.error_traceback or "").endswith("ValueError: plain\n")


def test_every_error_of_a_group_is_in_the_traceback() -> None:
    text = _run("group").executions.get().error_traceback or ""

    assert "ValueError: a\\x00" in text
    assert "KeyError: 'b'" in text


def test_a_long_text_keeps_its_start_and_its_end() -> None:
    long = "begin" + "x" * 200_000 + "end"
    message = error_text.record(ValueError(long)).message

    assert len(message) == 20_000
    assert message.startswith("begin")
    assert message.endswith("end")


@pytest.mark.parametrize("limit", [1, 10, 100, 1000])
def test_the_setting_limits_message_and_traceback(limit: int) -> None:
    with override_settings(GENEVA_DRIVE={"MAX_ERROR_CHARACTERS": limit}):
        record = error_text.record(ValueError("m" * 5000))

    assert len(record.message) == limit
    assert len(record.traceback) <= limit


@contextmanager
def three_byte_columns() -> Iterator[None]:
    def alter(charset: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(
                "ALTER TABLE geneva_drive_stepexecution "
                f"MODIFY error_message longtext CHARACTER SET {charset} NULL, "
                f"MODIFY error_traceback longtext CHARACTER SET {charset} NULL, "
                f"MODIFY error_class varchar(255) CHARACTER SET {charset} NULL"
            )

    alter("utf8mb3")
    try:
        yield
    finally:
        alter("utf8mb4")


@pytest.mark.django_db(transaction=True)
@pytest.mark.only_on("mysql", "mariadb", reason="only they have columns of three-byte characters")
@pytest.mark.parametrize("kind", ["emoji", "200 KB of emoji", "non-ASCII class", "NUL"])
def test_text_that_does_not_fit_a_three_byte_column_is_recorded_in_ascii(kind: str) -> None:
    with three_byte_columns():
        workflow = _run(kind)

        row = workflow.executions.get()
        assert (row.state, row.outcome) == ("failed", "failed")
        assert_state(workflow, "paused")
        if "emoji" in kind:
            assert "\\U0001f389" in (row.error_message or "")


def test_in_ascii_a_class_name_still_fits_its_column() -> None:
    record = error_text.ascii_only(ErrorRecord("ß" * 255, "ß", "ß"))

    assert len(record.class_name) == 255
    assert record.message == "\\xdf"

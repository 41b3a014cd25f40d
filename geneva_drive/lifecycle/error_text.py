"""Turn any exception into text that any database can store."""

from __future__ import annotations

import traceback

from django.db import DatabaseError, DataError

from geneva_drive.conf import settings
from geneva_drive.definition.decisions import ErrorRecord

_CLASS_CHARACTERS = 255
_CUT = "\n… cut here …\n"
# MySQL and MariaDB: incorrect string value, cannot convert string, impossible conversion.
_ENCODING_CODES = frozenset({1366, 3854, 3988})


def record(error: BaseException) -> ErrorRecord:
    """Describe ``error``. Never raises: recording a failure must not fail."""
    cls = type(error)
    limit = settings.MAX_ERROR_CHARACTERS
    return ErrorRecord(
        class_name=_storable(f"{cls.__module__}.{cls.__qualname__}", _CLASS_CHARACTERS),
        message=_storable(_message(error), limit),
        traceback=_storable(_traceback(error), limit),
    )


def record_both(error: BaseException, second: BaseException, what: str) -> ErrorRecord:
    """Describe ``error``, and a second one that was raised while it was handled. Never raises.

    Parameters
    ----------
    what
        What raised ``second``, for the message: "the handler 'back_off'".
    """
    first, other = record(error), record(second)
    limit = settings.MAX_ERROR_CHARACTERS
    refers = second.__cause__ is error or (second.__context__ is error and not second.__suppress_context__)
    return ErrorRecord(
        class_name=first.class_name,
        message=_storable(
            f"{first.message}\n\nThen {what} raised {other.class_name}: {other.message}", limit
        ),
        # With Python's own words between the two when the second refers to the first.
        traceback=other.traceback if refers else _storable(first.traceback + other.traceback, limit),
    )


def ascii_only(error: ErrorRecord) -> ErrorRecord:
    """Return the same in ASCII, for a column whose character set is smaller than Unicode."""
    return ErrorRecord(
        class_name=_ascii(error.class_name)[:_CLASS_CHARACTERS],
        message=_ascii(error.message),
        traceback=_ascii(error.traceback),
    )


def is_encoding_problem(error: DatabaseError) -> bool:
    """Whether a column may have refused a text because of its characters."""
    if isinstance(error, DataError):
        return True
    cause = error.__cause__ or error
    return bool(cause.args) and cause.args[0] in _ENCODING_CODES


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException as second:  # noqa: BLE001 - a __str__ may raise anything
        return f"<no message: {type(error).__name__}.__str__ raised {type(second).__name__}>"


def _traceback(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except BaseException as second:  # noqa: BLE001 - formatting calls the exception's own code
        try:
            frames = "".join(traceback.format_tb(error.__traceback__))
        except BaseException:  # noqa: BLE001
            frames = ""
        return f"{frames}<traceback of {type(error).__name__} incomplete: {type(second).__name__}>"


def _storable(text: str, limit: int) -> str:
    # PostgreSQL refuses NUL and lone surrogates.
    text = text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()
    if len(text) <= limit:
        return text
    if limit <= 2 * len(_CUT):
        return text[:limit]
    # The end of a traceback says what happened, and its beginning where it started.
    head = (limit - len(_CUT)) // 2
    return text[:head] + _CUT + text[len(text) - (limit - len(_CUT) - head) :]

"""What a worker's terminal shows."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import OutputWrapper

from geneva_drive.management.output import show_logs


@contextmanager
def nothing_configured() -> Iterator[None]:
    """As in a project without ``LOGGING``. Within the test, since pytest adds handlers of its own before it."""
    logger, root = logging.getLogger("geneva_drive"), logging.getLogger()
    before, level = (logger.handlers, root.handlers), logger.level
    logger.handlers, root.handlers = [], []
    try:
        yield
    finally:
        logger.handlers, root.handlers = before
        logger.setLevel(level)


def test_without_logging_of_the_projects_own_it_is_shown() -> None:
    stream = io.StringIO()

    with nothing_configured():
        show_logs(OutputWrapper(stream))
        show_logs(OutputWrapper(stream))  # once is enough
        logging.getLogger("geneva_drive.step").info("two %s", "parcels")

    assert re.fullmatch(r"\d{4}-\d\d-\d\d \S+ INFO two parcels\n", stream.getvalue())


def test_where_the_project_logs_it_is_left_to_that() -> None:
    stream, own = io.StringIO(), io.StringIO()

    with nothing_configured():
        logging.getLogger().addHandler(logging.StreamHandler(own))
        show_logs(OutputWrapper(stream))
        logging.getLogger("geneva_drive.step").warning("two parcels")

    assert (stream.getvalue(), own.getvalue()) == ("", "two parcels\n")

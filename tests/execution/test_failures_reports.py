"""An error is logged as its policy says."""

from __future__ import annotations

import logging

import pytest

from geneva_drive import ExceptionPolicy, step
from geneva_drive.testing import run_to_end
from tests.execution.scripted import Busy, Scripted, play, rows

pytestmark = pytest.mark.django_db

ERRORS = "geneva_drive.errors"


class FailsReporting(Scripted):
    @step(
        on_exception=[
            ExceptionPolicy("reattempt", matching=Busy, max_reattempts=2, report="terminal_only"),
            ExceptionPolicy("reattempt", matching=KeyError, max_reattempts=2, report="never"),
            ExceptionPolicy("reattempt", matching=OSError, max_reattempts=2),
            ExceptionPolicy("skip", matching=TypeError, report="terminal_only"),
            ExceptionPolicy("skip", matching=ValueError, report="never"),
        ]
    )
    def work(self) -> None:
        self.script(self)


@pytest.mark.parametrize(
    ("error", "reports"),
    [(Busy(), 1), (KeyError(), 0), (OSError(), 3), (TypeError(), 1), (ValueError(), 0), (LookupError(), 1)],
)
def test_an_error_is_reported_as_its_policy_says(
    error: Exception, reports: int, caplog: pytest.LogCaptureFixture
) -> None:
    workflow = run_to_end(play(FailsReporting, error), raise_errors=False)

    logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert [record.exc_info[1] for record in logged if record.exc_info] == [error] * reports
    for record in logged:
        assert record.name == ERRORS
        assert vars(record)["workflow_type"] == "testapp.FailsReporting"
        assert vars(record)["workflow_id"] == workflow.pk
        assert vars(record)["step"] == "work"
        assert vars(record)["execution_id"] in {row.pk for row in rows(workflow)}

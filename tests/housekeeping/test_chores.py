"""One pass of all chores."""

from __future__ import annotations

import pytest

from geneva_drive import housekeeping
from tests.housekeeping.support import DAY, KeptTwo, ended, in_hand, process

pytestmark = pytest.mark.django_db


def test_one_pass_reports_its_counts() -> None:
    ended(1, ago=50 * DAY)
    in_hand(KeptTwo.start(), process(beat=DAY))
    counts = housekeeping.housekeep()
    told = {name: count for name, count in counts.as_dict().items() if count}
    assert told == {"recovered": 1, "processes": 1, "workflows": 1, "executions": 2}

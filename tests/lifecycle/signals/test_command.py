"""``manage.py geneva_signal``."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from geneva_drive import Signal
from geneva_drive.testing import run_to_end
from tests.lifecycle.signals.support import active, at_gate, signal_rows
from tests.lifecycle.signals.workflows import BadMatcher, Parcel

pytestmark = pytest.mark.django_db


def send(*arguments: Any, **options: Any) -> str:
    """Call the command and return what it printed."""
    printed = io.StringIO()
    call_command("geneva_signal", *map(str, arguments), stdout=printed, **options)
    return printed.getvalue()


def refused(*arguments: Any, **options: Any) -> int:
    """Call the command, which fails; return its exit status."""
    with pytest.raises(CommandError) as caught:
        send(*arguments, **options)
    return caught.value.returncode


def test_it_sends_a_payload_from_an_argument() -> None:
    workflow = at_gate(Parcel)

    printed = send(workflow.pk, "scanned", '{"at": {"$decimal": "1.50"}}')

    assert "is claimed" in printed
    assert str(Signal.objects.get().payload) == "{'at': Decimal('1.50')}"
    assert active(workflow).state == "scheduled"


def test_it_sends_a_payload_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    workflow = at_gate(Parcel)
    monkeypatch.setattr("sys.stdin", io.StringIO('["a", 1]\n'))

    send(workflow.pk, "scanned", "-")

    assert Signal.objects.get().payload == ["a", 1]


def test_it_sends_no_payload_unless_given_one() -> None:
    workflow = at_gate(Parcel)

    send(workflow.pk, "scanned")

    assert Signal.objects.get().payload is None


def test_it_reports_a_duplicate_and_succeeds() -> None:
    workflow = at_gate(Parcel)
    send(workflow.pk, "scanned", idempotency_key="evt")
    run_to_end(workflow)

    printed = send(workflow.pk, "scanned", idempotency_key="evt")

    assert "nothing was changed" in printed
    assert len(signal_rows(workflow)) == 1


def plain(key: Any) -> Any:
    """A key as in JSON: a number if keys are integers."""
    return key if isinstance(key, int) else str(key)


def test_it_prints_json() -> None:
    workflow = at_gate(Parcel)

    printed = json.loads(send(workflow.pk, "scanned", "--json", "--idempotency-key", "evt"))

    assert printed == {
        "signal": plain(Signal.objects.get().pk),
        "workflow": plain(workflow.pk),
        "name": "scanned",
        "idempotency_key": "evt",
        "state": "claimed",
        "duplicate": False,
    }


def test_it_exits_1_when_the_workflow_refuses_the_signal() -> None:
    workflow = at_gate(Parcel)
    workflow.cancel()

    assert refused(workflow.pk, "scanned") == 1
    gone = Parcel.start()
    key = gone.pk
    gone.delete()
    assert refused(key, "scanned") == 1


@pytest.mark.parametrize("payload", ["{", "NaN", '{"$decimal": "x"}', '"\\u0000"', "9999999999999999999999"])
def test_it_exits_2_on_an_invalid_payload(payload: str) -> None:
    workflow = at_gate(Parcel)

    assert refused(workflow.pk, "scanned", payload) == 2
    assert signal_rows(workflow) == []


def test_it_says_that_the_payload_is_not_json() -> None:
    workflow = at_gate(Parcel)

    with pytest.raises(CommandError, match="The payload is not JSON: Expecting"):
        send(workflow.pk, "scanned", "{")


def test_it_names_workflows_like_the_other_commands() -> None:
    with pytest.raises(CommandError, match="'abc' is not a workflow id"):
        send("abc", "scanned")
    gone = Parcel.start()
    key = gone.pk
    gone.delete()
    with pytest.raises(CommandError, match=f"There is no workflow {key} in 'default'."):
        send(key, "scanned")


def test_it_exits_2_on_other_misuse() -> None:
    workflow = at_gate(Parcel)

    assert refused("no key", "scanned") == 2
    assert refused(workflow.pk, "") == 2
    assert refused(workflow.pk, "scanned", idempotency_key="") == 2
    assert refused(workflow.pk, "scanned", using="nowhere") == 2


def test_an_error_in_a_matcher_is_not_hidden() -> None:
    workflow = at_gate(BadMatcher)

    with pytest.raises(TypeError):
        send(workflow.pk, "go", "5")
    assert signal_rows(workflow) == []

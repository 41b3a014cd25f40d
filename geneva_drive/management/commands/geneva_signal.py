"""Send a signal to a workflow: ``manage.py geneva_signal``."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser

from geneva_drive import serialization
from geneva_drive.exceptions import InvalidSignalError, PayloadError, WorkflowNotOngoing
from geneva_drive.management.base import FAILED, MISUSE, OperatorCommand


class Command(OperatorCommand):
    help = (
        "Send a signal to a workflow. Exit status: 0 sent, or sent before with the same key; 1 there is no such "
        "workflow, or it is finished or canceled; 2 usage error, or a payload that cannot be sent."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workflow", metavar="WORKFLOW", help="The workflow's id.")
        parser.add_argument("name", metavar="NAME", help="The signal's name, which a step waits for.")
        parser.add_argument(
            "payload",
            metavar="PAYLOAD",
            nargs="?",
            help="JSON, or - to read JSON from standard input. Default: none.",
        )
        parser.add_argument(
            "--idempotency-key",
            metavar="KEY",
            help="A signal with the same name and key is sent only once.",
        )
        super().add_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        workflow = self.workflow(options, "workflow")
        payload = _payload(options["payload"])
        try:
            signal = workflow.signal(options["name"], payload, idempotency_key=options["idempotency_key"])
        except WorkflowNotOngoing as error:
            raise CommandError(str(error), returncode=FAILED) from error
        except (InvalidSignalError, PayloadError) as error:
            raise CommandError(str(error), returncode=MISUSE) from error
        if options["json"]:
            described = {
                "signal": signal.pk,
                "workflow": workflow.pk,
                "name": signal.name,
                "idempotency_key": signal.idempotency_key,
                "state": str(signal.state),
                "duplicate": signal.duplicate,
            }
            self.write_json(described)
        elif signal.duplicate:
            self.stdout.write(f"Signal {signal.pk} was sent before with this key; nothing was changed.")
        else:
            self.stdout.write(f"Signal {signal.pk} was sent to {workflow}; it is {signal.state}.")


def _payload(given: str | None) -> Any:
    if given is None:
        return None
    text = sys.stdin.read() if given == "-" else given
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CommandError(f"The payload is not JSON: {error}.", returncode=MISUSE) from error
    try:
        return serialization.decode(plain, strict=True)
    except PayloadError as error:
        raise CommandError(f"The payload cannot be read. {error}", returncode=MISUSE) from error

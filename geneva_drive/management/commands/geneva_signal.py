"""Send a signal to a workflow: ``manage.py geneva_signal``."""

from __future__ import annotations

import json
import sys
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser

from geneva_drive import serialization
from geneva_drive.exceptions import InvalidSignalError, PayloadError, WorkflowNotOngoing
from geneva_drive.management.selection import alias_of_option
from geneva_drive.models.workflow import Workflow

REFUSED = 1
USAGE = 2


class Command(BaseCommand):
    help = (
        "Send a signal to a workflow. Exit status: 0 when it was sent, or had been sent before under the same "
        "key; 1 when there is no such workflow, or it is finished or canceled; 2 when what was given cannot be "
        "sent."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("workflow", metavar="WORKFLOW", help="The key of the workflow.")
        parser.add_argument("name", metavar="NAME", help="The name that a step waits for.")
        parser.add_argument(
            "payload",
            metavar="PAYLOAD",
            nargs="?",
            help="JSON, or - to read JSON from standard input. Default: none.",
        )
        parser.add_argument(
            "--idempotency-key",
            metavar="KEY",
            help="Sent again with the same name and key, nothing changes.",
        )
        parser.add_argument("--json", action="store_true", help="Print the signal as one JSON object.")
        parser.add_argument("--using", help="The database alias. Default: what the routers say.")

    def handle(self, *_args: Any, **options: Any) -> None:
        using = alias_of_option(options["using"])
        workflow = _workflow(options["workflow"], using)
        payload = _payload(options["payload"])
        try:
            signal = workflow.signal(options["name"], payload, idempotency_key=options["idempotency_key"])
        except WorkflowNotOngoing as error:
            raise CommandError(str(error), returncode=REFUSED) from error
        except (InvalidSignalError, PayloadError) as error:
            raise CommandError(str(error), returncode=USAGE) from error
        if options["json"]:
            described = {
                "signal": str(signal.pk),
                "workflow": str(workflow.pk),
                "name": signal.name,
                "idempotency_key": signal.idempotency_key,
                "state": str(signal.state),
                "duplicate": signal.duplicate,
            }
            self.stdout.write(json.dumps(described))
        elif signal.duplicate:
            self.stdout.write(f"Signal {signal.pk} had been sent before under this key; nothing was changed.")
        else:
            self.stdout.write(f"Signal {signal.pk} was sent to {workflow}; it is {signal.state}.")


def _workflow(key: str, using: str) -> Workflow:
    try:
        workflow: Workflow = Workflow.objects.using(using).get(pk=key)
        return workflow
    except Workflow.DoesNotExist:
        raise CommandError(f"There is no workflow {key}.", returncode=REFUSED) from None
    except (ValueError, ValidationError, OverflowError):
        raise CommandError(f"{key!r} cannot be the key of a workflow.", returncode=USAGE) from None


def _payload(given: str | None) -> Any:
    if given is None:
        return None
    text = sys.stdin.read() if given == "-" else given
    try:
        return serialization.loads(text, strict=True)
    except PayloadError as error:
        raise CommandError(f"The payload cannot be read. {error}", returncode=USAGE) from error

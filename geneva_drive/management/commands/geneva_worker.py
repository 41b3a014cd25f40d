"""Run steps: ``manage.py geneva_worker``."""

from __future__ import annotations

import argparse
from typing import Any

from django.core.management.base import CommandError, CommandParser

from geneva_drive.management.base import DatabaseCommand
from geneva_drive.management.output import show_logs, show_steps
from geneva_drive.worker import Feeder, Worker


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _seconds(text: str) -> float:
    number = float(text)
    if not 0.01 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not between 0.01 and 3600 seconds")
    return number


class Command(DatabaseCommand):
    help = (
        "Run the steps of workflows as they become due. On the first SIGTERM or SIGINT the worker finishes its running "
        "steps and exits with 0. On the second it exits at once, and another worker recovers its steps."
    )

    explains_outages = False  # a worker survives them; an error that ends it needs its traceback

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--queues", help="Comma-separated names; all queues when left out.")
        parser.add_argument(
            "--threads", type=_positive, default=1, help="Steps at the same time. Default: 1."
        )
        parser.add_argument(
            "--poll-interval",
            type=_seconds,
            default=1.0,
            metavar="SECONDS",
            help="Time between two polls. Default: 1.",
        )
        parser.add_argument("--drain", action="store_true", help="Exit when nothing is due.")
        parser.add_argument("--max-steps", type=_positive, metavar="N", help="Exit after N steps.")
        parser.add_argument(
            "--no-listen",
            action="store_true",
            help="On PostgreSQL, poll only: for connection poolers that do not support LISTEN.",
        )
        parser.add_argument(
            "--feed-only",
            action="store_true",
            help="Run no steps. Dispatch steps shortly before they are due, and run housekeeping. For projects "
            "whose steps are run by Celery or Django Tasks. Several may run.",
        )
        super().add_arguments(parser)

    def handle(self, *_args: Any, **options: Any) -> None:
        using = options["using"]
        if options["verbosity"]:
            show_logs(self.stderr)
        if options["verbosity"] > 1:
            show_steps(self.stdout)
        if options["feed_only"]:
            self._feed(using, options)
            return
        queues = None
        if options["queues"] is not None:
            queues = [name.strip() for name in options["queues"].split(",") if name.strip()]
            if not queues:
                raise CommandError("--queues is empty. Leave it out for all queues.", returncode=2)
        worker = Worker(
            using=using,
            queues=queues,
            threads=options["threads"],
            poll_interval=options["poll_interval"],
            drain=options["drain"],
            max_steps=options["max_steps"],
            listen=not options["no_listen"],
        )
        if options["verbosity"]:
            woken = "woken by the database" if worker.listen else "polling"
            self.stdout.write(
                f"Worker on {worker.using!r}, {', '.join(queues) if queues else 'all queues'}, "
                f"{worker.threads} thread(s), {woken}. Ctrl-C finishes the running steps."
            )
        performed = worker.run()
        if options["verbosity"]:
            self.stdout.write(f"Worker stopped after {performed} step(s).")

    def _feed(self, using: str, options: dict[str, Any]) -> None:
        for name, given in (("--queues", "queues"), ("--max-steps", "max_steps")):
            if options[given] is not None:
                raise CommandError(
                    f"{name} cannot be combined with --feed-only, which runs no steps.", returncode=2
                )
        feeder = Feeder(
            using,
            poll_interval=options["poll_interval"],
            drain=options["drain"],
        )
        if options["verbosity"]:
            self.stdout.write(f"Feeder on {feeder.using!r}. Ctrl-C ends it.")
        fed = feeder.run()
        if options["verbosity"]:
            self.stdout.write(f"Feeder stopped after {fed} execution(s).")

"""Watch orders go through their workflows: ``make demo``, or ``python -m example_project.demo``.

Exit status: 0 if every workflow ended as expected, 1 if one did not, 130 after Ctrl-C.
"""

from __future__ import annotations

import io
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import django

if TYPE_CHECKING:
    from example_project.display import Display, History, Titles
    from example_project.shop.models import Order
    from example_project.stories import Timeline
    from geneva_drive import Workflow

LOOK_EVERY = 0.2  # seconds
GIVE_UP_AFTER = 120.0  # seconds; the demo takes about fifteen
SUBSCRIBERS = 2000
PAUSE_SHOWN_FOR = 2.0  # seconds; so that people see the paused workflow before it is resumed


def main() -> int:
    """Prepare a database, run workflows with a worker, check the results, and print what to look at next."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    signal.signal(signal.SIGTERM, _terminate)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    django.setup()
    from example_project.worker import Stopped

    try:
        _prepare()
        password = _superuser()
        problems = _run()
    except KeyboardInterrupt:
        print("\nStopped. Running steps were finished. The next worker continues with the others.")
        return 130
    except Stopped as error:
        problems = [str(error)]
    for problem in problems:
        print(f"NOT AS EXPECTED: {problem}")
    if not problems:
        _say_what_is_next(password)
    return 1 if problems else 0


def _prepare() -> None:
    from django.core.management import call_command
    from django.db import connection

    if connection.vendor == "sqlite":
        # The demo starts with an empty shop. A database on a server is kept, because it may contain other data.
        name = str(connection.settings_dict["NAME"])
        for suffix in ("", "-wal", "-shm"):
            Path(name + suffix).unlink(missing_ok=True)
    print(f"Migrating {connection.vendor} {connection.settings_dict['NAME']} …", flush=True)
    call_command("migrate", verbosity=0, interactive=False)


def _superuser() -> str:
    from django.contrib.auth.models import User

    password = secrets.token_urlsafe(9)
    user, _ = User.objects.get_or_create(username="admin", defaults={"is_staff": True, "is_superuser": True})
    user.set_password(password)
    user.save()
    return password


def _run() -> list[str]:
    from example_project.display import display
    from example_project.shop.workflows import Fulfilment, Newsletter, SalesReport
    from example_project.stories import begin, subscribe
    from example_project.worker import worker

    stories = {workflow.pk: timeline for workflow, timeline in begin().items()}
    report = SalesReport.start()
    titles = {key: (timeline.customer, timeline.description) for key, timeline in stories.items()}
    titles[report.pk] = ("sales report", "a workflow without a hero")
    letters = subscribe(SUBSCRIBERS)
    newsletter = Newsletter.start()
    titles[newsletter.pk] = (
        "newsletter",
        f"a loop over {SUBSCRIBERS:,} subscribers that lets other workflows run in between",
    )
    removed = Fulfilment.removed_steps_in_flight()
    for name, description in titles.values():
        print(f"  {name}: {description}")
    print(f"Starting a worker. Removed steps in flight: {removed}.", flush=True)
    with worker("--threads", "2", "--poll-interval", "0.2") as process, display(titles) as shown:
        seen = _watch(titles, shown, lambda: process.poll() is None)
    removed = Fulfilment.removed_steps_in_flight()
    print(f"Removed steps in flight: {removed or 'none, so the gravestone can be deleted'}.")
    return _judge(seen, stories, titles) + _judge_letters(seen, letters)


def _watch(titles: Titles, shown: Display, works: Callable[[], bool]) -> dict[Workflow, History]:
    """Show progress and act as customer, operator, bank and carrier until all workflows have ended."""
    from example_project.display import histories

    helper = _People(shown)
    until = time.monotonic() + GIVE_UP_AFTER
    while True:
        seen = histories(titles)
        shown.show(seen)
        if all(workflow.is_ended for workflow in seen) or not works() or time.monotonic() > until:
            return seen
        helper.act(seen)
        time.sleep(LOOK_EVERY)


class _People:
    """The people around the workflows: a customer who changes her mind, an operator, the bank, the carrier."""

    def __init__(self, shown: Display) -> None:
        self._say = shown.say
        self._withdrawn = False
        self._paused_since: float | None = None

    def act(self, seen: dict[Workflow, History]) -> None:
        from example_project.shop.models import Order

        for workflow, history in seen.items():
            order = workflow.hero
            if not isinstance(order, Order):
                continue
            if order.customer == "Dora" and len(history) > 1 and not self._withdrawn:
                self._withdrawn = True
                Order.objects.filter(pk=order.pk).update(withdrawn=True)
                self._say("Dora withdraws her order. Its cancel_if will notice that before the next step.")
            if history and history[-1].state == "waiting":
                self._signal(workflow, history[-1].step_name, order)
            if workflow.state == "paused":
                self._help(workflow, history, order)

    def _signal(self, workflow: Workflow, step_name: str, order: Order) -> None:
        """Send the signals that the webhooks in `shop.views` would send."""
        if step_name == "take_payment":
            key = f"payment-{order.pk}"
            signal = workflow.signal("payment", {"amount": order.total}, idempotency_key=key)
            text = f"The bank reports that {order.customer} has paid {order.total}."
        else:
            key = f"scan-{order.tracking}"
            signal = workflow.signal("parcel_scanned", {"place": "doorstep"}, idempotency_key=key)
            text = f"The carrier scans {order.customer}'s parcel at the doorstep."
        if not signal.duplicate:
            self._say(text)

    def _help(self, workflow: Workflow, history: History, order: Order) -> None:
        if self._paused_since is None:
            self._paused_since = time.monotonic()
            self._say(
                f"{order.customer}'s workflow has paused: {history[-1].step_name} raised "
                f"{history[-1].error_class}: {history[-1].error_message}"
            )
        elif time.monotonic() - self._paused_since > PAUSE_SHOWN_FOR:
            order.address = "5 Mill Lane"
            order.save(update_fields=["address"])
            workflow.resume(by="demo", reason="the customer told us the address")
            self._paused_since = None
            self._say(f"The demo adds the address and calls resume(): {history[-1].step_name} runs again.")


def _judge_letters(seen: dict[Workflow, History], before: int) -> list[str]:
    from example_project.stories import letters_sent

    sent = letters_sent() - before
    recovered = any(one.outcome == "recovered" for history in seen.values() for one in history)
    # If the machine was suspended, some letters are sent twice. None is ever missing.
    if sent == SUBSCRIBERS or (recovered and sent > SUBSCRIBERS):
        return []
    return [f"newsletter: {sent} letters were sent to {SUBSCRIBERS} subscribers"]


def _judge(seen: dict[Workflow, History], stories: dict[int, Timeline], titles: Titles) -> list[str]:
    """Return how the workflows' results differ from the expected ones."""
    from example_project.shop.models import Order

    problems = []
    for workflow, history in seen.items():
        title = titles[workflow.pk][0]
        timeline = stories.get(workflow.pk)
        ends, expected = (timeline.ends, timeline.expected) if timeline is not None else ("finished", None)
        if workflow.state != ends:
            problems.append(f"{title}: it is {workflow.state} at {workflow.next_step_name}, not {ends}")
        # If the machine was suspended, steps are recovered. That is correct, but not part of the expectation.
        steps = [f"{one.step_name} {one.state}" for one in history if one.outcome != "recovered"]
        if expected is not None and steps != expected:
            problems.append(f"{title}: its steps are {steps}, not {expected}")
        order = workflow.hero
        if isinstance(order, Order) and ends == "finished":
            if order.paid != order.total:
                problems.append(f"{title}: {order.paid} was paid for {order.total}")
            if not order.tracking:
                problems.append(f"{title}: it has no tracking number")
    return problems


def _say_what_is_next(password: str) -> None:
    python = os.path.relpath(sys.executable)
    manage = os.path.relpath(Path(__file__).resolve().parent / "manage.py")
    url = os.environ.get("SHOP_DATABASE_URL")
    setting = f"SHOP_DATABASE_URL={url} " if url else ""
    print(
        f"""
All workflows ended as expected. To see the orders in the admin, run:

    {setting}{python} {manage} runserver

and open http://127.0.0.1:8000/admin/    user: admin    password: {password}
"""
    )


def _terminate(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())

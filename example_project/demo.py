"""Watch orders go through their workflows: ``make demo``, or ``python -m example_project.demo``.

Exits with 0 when every workflow ended as its timeline says, with 1 when one did not, with 130 after Ctrl-C.
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
GIVE_UP_AFTER = 120.0  # seconds; it takes about fifteen
SUBSCRIBERS = 2000
LET_THEM_SEE_THE_PAUSE = 2.0  # seconds


def main() -> int:
    """Prepare a database, start workflows and a worker, watch, judge, say what to look at next."""
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
        print("\nStopped. Steps in hand were finished; the rest waits in the database for the next worker.")
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
        # A demo begins with an empty shop. Databases on servers are not ours to drop.
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
    titles = {key: (timeline.customer, timeline.told) for key, timeline in stories.items()}
    titles[report.pk] = ("sales report", "runs for nobody in particular")
    letters = subscribe(SUBSCRIBERS)
    newsletter = Newsletter.start()
    titles[newsletter.pk] = (
        "newsletter",
        f"a loop over {SUBSCRIBERS:,} subscribers, which gives way to others",
    )
    removed = Fulfilment.removed_steps_in_flight()
    for name, told in titles.values():
        print(f"  {name}: {told}")
    print(f"They wait for a worker. Removed steps in flight: {removed}.", flush=True)
    with worker("--threads", "2", "--poll-interval", "0.2") as process, display(titles) as shown:
        seen = _watch(titles, shown, lambda: process.poll() is None)
    removed = Fulfilment.removed_steps_in_flight()
    print(f"Removed steps in flight: {removed or 'none, so the gravestones can go'}.")
    return _judge(seen, stories, titles) + _judge_letters(seen, letters)


def _watch(titles: Titles, shown: Display, works: Callable[[], bool]) -> dict[Workflow, History]:
    """Look, and play customer, operator, bank and carrier, until all have ended."""
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
    """What no workflow does by itself: a customer who changes her mind, an operator who helps, the outside world."""

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
                self._say("Dora withdraws her order. Before the next step, its cancel_if will see that.")
            if history and history[-1].state == "waiting":
                self._signal(workflow, history[-1].step_name, order)
            if workflow.state == "paused":
                self._help(workflow, history, order)

    def _signal(self, workflow: Workflow, step_name: str, order: Order) -> None:
        """Send what the bank and the carrier send to the webhooks of `shop.views`."""
        if step_name == "take_payment":
            key = f"payment-{order.pk}"
            signal = workflow.signal("payment", {"amount": order.total}, idempotency_key=key)
            told = f"The bank tells that {order.customer} has paid {order.total}."
        else:
            key = f"scan-{order.tracking}"
            signal = workflow.signal("parcel_scanned", {"place": "doorstep"}, idempotency_key=key)
            told = f"The carrier scans {order.customer}'s parcel at the doorstep."
        if not signal.duplicate:
            self._say(told)

    def _help(self, workflow: Workflow, history: History, order: Order) -> None:
        if self._paused_since is None:
            self._paused_since = time.monotonic()
            self._say(
                f"{order.customer}'s workflow has paused: {history[-1].step_name} raised "
                f"{history[-1].error_class}: {history[-1].error_message}"
            )
        elif time.monotonic() - self._paused_since > LET_THEM_SEE_THE_PAUSE:
            order.address = "5 Mill Lane"
            order.save(update_fields=["address"])
            workflow.resume(by="demo", reason="the customer told us the address")
            self._paused_since = None
            self._say(
                f"The demo completes the address and calls resume(): {history[-1].step_name} runs again."
            )


def _judge_letters(seen: dict[Workflow, History], before: int) -> list[str]:
    from example_project.stories import letters_sent

    sent = letters_sent() - before
    recovered = any(one.outcome == "recovered" for history in seen.values() for one in history)
    # After a machine that slept, some letters went out twice; none is ever missing.
    if sent == SUBSCRIBERS or (recovered and sent > SUBSCRIBERS):
        return []
    return [f"newsletter: {sent} letters were sent for {SUBSCRIBERS} subscribers"]


def _judge(seen: dict[Workflow, History], stories: dict[int, Timeline], titles: Titles) -> list[str]:
    """Compare how the workflows ended with how they had to; return what differs."""
    from example_project.shop.models import Order

    problems = []
    for workflow, history in seen.items():
        title = titles[workflow.pk][0]
        timeline = stories.get(workflow.pk)
        ends, expected = (timeline.ends, timeline.expected) if timeline is not None else ("finished", None)
        if workflow.state != ends:
            problems.append(f"{title}: it is {workflow.state} at {workflow.next_step_name}, not {ends}")
        # A machine that slept has its steps recovered, which is right and no part of the timeline.
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
All ended as they should. The orders are in the admin:

    {setting}{python} {manage} runserver

http://127.0.0.1:8000/admin/    user: admin    password: {password}
"""
    )


def _terminate(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())

"""What people do on the pages, in a real browser, under a strict Content-Security-Policy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from geneva_drive import Workflow, removed_step, resumable_step, step
from geneva_drive.models import OperatorAction
from geneva_drive.testing import assert_state, assert_step, run_iterations, run_next_step, run_to_end
from geneva_drive.workflows import BulkAction
from tests.admin.conftest import url
from tests.browser import Browser, started_browser, why_no_browser
from tests.management.test_action_commands import started, stumbled
from tests.testapp.models import Order

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.only_on("sqlite", "postgresql", reason="a browser sees the same pages on all of them"),
    pytest.mark.once(reason="a browser takes long, and the pages are tested without one in both"),
    pytest.mark.skipif(why_no_browser() is not None, reason=why_no_browser() or ""),
]

LIST, PAGE, ACT = "geneva_drive_workflow_changelist", "geneva_drive_workflow_change", "geneva_drive_act"
TAB, ENTER, SPACE, DOWN = "\ue004", "\ue007", " ", "\ue015"


class Parcel(Workflow):
    """Waits for a signal, then fails."""

    class Meta:
        app_label = "testapp"

    @step
    def authorize(self) -> None: ...

    capture_payment = removed_step()

    @step(wait_for="parcel_scanned", on_exception="pause")
    def ship(self) -> None:
        raise TimeoutError("carrier did not answer")

    @step(formerly=["send_mail"])
    def send_receipt(self) -> None: ...


class Looping(Workflow):
    """Goes through ten items."""

    class Meta:
        app_label = "testapp"

    @resumable_step
    def notify(self, iteration: Any) -> None:
        for _ in iteration.iterate(list(range(10))):
            pass


def paused_parcel() -> Parcel:
    parcel = Parcel.start(Order.objects.create())
    parcel.signal("parcel_scanned", {"tracking": "JD0146", "weights": [1, 2.5]}, idempotency_key="evt_8812")
    run_to_end(parcel, raise_errors=False)
    return parcel


@pytest.fixture(scope="session")
def live_server(django_db_setup: None, live_server: Any) -> Any:
    """Start pytest-django's server after the databases exist: otherwise it would share the test's own connection."""
    return live_server


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    profile: Path = tmp_path_factory.mktemp("profile")
    with started_browser(profile) as found:
        yield found


@pytest.fixture
def browser(driver: Any, live_server: Any) -> Iterator[Browser]:
    """A superuser's browser. After each test, its console must be empty: no violation of the policy, no error."""
    found = Browser(driver, live_server)
    driver.delete_all_cookies()
    found.log_in()
    found.theme("light")
    found.complaints()
    yield found
    assert found.complaints() == []


class TestWorkflowPage:
    def test_shows_what_happened_and_unfolds_an_error(self, browser: Browser) -> None:
        parcel = paused_parcel()
        browser.open(url(PAGE, parcel.pk))
        assert "paused" in browser.text(".gd-head")
        assert "ship" in browser.text(".gd-why")
        assert browser.text('[aria-current="step"] b') == "ship"
        assert "formerly send_mail" in browser.text(".gd-steps")
        assert "claimed by ship" in browser.text("#content-main")
        assert "Traceback" not in browser.text("#content-main")
        browser.find("details[id^=error-] summary").click()
        assert "Traceback" in browser.text("#content-main")

    def test_shows_how_far_a_loop_is(self, browser: Browser) -> None:
        loop = Looping.start(Order.objects.create())
        run_iterations(loop, 3)
        browser.open(url(PAGE, loop.pk))
        assert "3 of 10 (30%) done" in browser.text(".gd-steps")
        assert "in 2 executions" in browser.text("#content-main")

    def test_keeps_its_place_after_a_reload(self, browser: Browser) -> None:
        parcel = paused_parcel()
        parcel.resume()
        run_to_end(parcel, raise_errors=False)
        browser.driver.set_window_size(1000, 500)
        browser.open(url(PAGE, parcel.pk))
        error = browser.all("details[id^=error-] summary")[1]
        error.click()
        browser.driver.execute_script("window.scrollTo(0, 180)")
        browser.leave_by(browser.driver.refresh)
        opened = [bool(each.get_attribute("open")) for each in browser.all("details[id^=error-]")]
        assert opened == [False, True]
        browser.wait_for(lambda: browser.driver.execute_script("return window.scrollY") == 180)
        browser.driver.set_window_size(1200, 1000)

    @pytest.mark.parametrize("theme", ["light", "dark"])
    def test_is_legible_in_both_themes(self, browser: Browser, theme: str) -> None:
        parcel = paused_parcel()
        browser.theme(theme)
        browser.open(url(PAGE, parcel.pk))
        for selector in (
            ".gd-why strong",
            ".gd-pill",
            ".gd-steps b",
            ".gd-steps small",
            "table.gd td",
            ".gd-note",
        ):
            assert _contrast(browser, selector) >= 4.5, selector

    def test_fits_a_narrow_screen(self, browser: Browser) -> None:
        parcel = paused_parcel()
        browser.driver.set_window_size(500, 900)
        for address in (url(PAGE, parcel.pk), url("geneva_drive_overview"), url(ACT, parcel.pk, "resume_at")):
            browser.open(address)
            width = browser.driver.execute_script(
                "return document.querySelector('#content-main').scrollWidth - document.documentElement.clientWidth"
            )
            assert width <= 0, address
        browser.driver.set_window_size(1200, 1000)


class TestActions:
    def test_resume_is_done_at_once(self, browser: Browser) -> None:
        workflow = stumbled()
        browser.open(url(PAGE, workflow.pk))
        browser.leave_by(browser.button("Resume: retry second").click)
        assert browser.path == url(PAGE, workflow.pk)
        assert "Resume: done." in browser.text(".messagelist")
        assert_step(workflow, "second", "scheduled")
        assert OperatorAction.objects.get().actor == "root"

    def test_cancel_asks_for_a_reason_first(self, browser: Browser) -> None:
        (workflow,) = started()
        browser.open(url(PAGE, workflow.pk))
        browser.leave_by(browser.link("Cancel…").click)
        assert "This cannot be undone" in browser.text("#content-main")
        browser.button("Cancel").click()
        assert_state(workflow, "ready")  # the browser holds it back, for want of a reason
        browser.find("#id_reason").send_keys("ordered twice")
        browser.leave_by(browser.button("Cancel").click)
        assert_state(workflow, "canceled")
        assert "ordered twice" in browser.text("#content-main")

    def test_resume_at_a_step_shows_what_would_run(self, browser: Browser) -> None:
        parcel = paused_parcel()
        browser.open(url(PAGE, parcel.pk))
        browser.leave_by(browser.link("Resume at a step…").click)
        text = browser.text(".gd-choices")
        assert "removed step: cannot resume here" in text
        assert "waits for parcel_scanned: received in 1 of 1" in text
        assert "will not run: ship (1)" in text
        browser.find('input[value="send_receipt"]').click()
        browser.find("#id_reason").send_keys("she fetched it herself")
        browser.leave_by(browser.button("Resume at a step").click)
        assert_step(parcel, "send_receipt", "scheduled")

    def test_the_ticked_rows(self, browser: Browser) -> None:
        chosen = started(3)
        chosen[0].cancel()
        browser.open(url(LIST))
        for each in chosen[:2]:
            browser.find(f'input.action-select[value="{each.pk}"]').click()
        browser.find('select[name="action"] option[value="pause"]').click()
        browser.leave_by(browser.find(".actions button[name=index]").click)
        assert "Pause: 2 workflows" in browser.text("h1:not(#site-name)")
        browser.leave_by(browser.button("Pause: 2").click)
        assert "Pause: 1 done." in browser.text(".messagelist")
        assert f"1 failed: {chosen[0].pk}: " in browser.text(".messagelist")
        assert_state(chosen[1], "paused")
        assert_state(chosen[2], "ready")

    def test_all_that_match(self, browser: Browser) -> None:
        chosen, other = started(60), stumbled()
        browser.open(url(LIST) + "?type=testapp.FiveSteps")
        browser.find("#action-toggle").click()
        browser.find(".actions .question a").click()
        browser.find('select[name="action"] option[value="pause"]').click()
        browser.leave_by(browser.find(".actions button[name=index]").click)
        assert "Pause: 60 workflows" in browser.text("h1:not(#site-name)")
        browser.find("#id_reason").send_keys("stocktaking")
        browser.leave_by(browser.button("Pause: 60").click)
        bulk = BulkAction.objects.get()
        assert browser.path == url(PAGE, bulk.pk)
        run_to_end(bulk)
        browser.leave_by(browser.link("reload").click)
        assert "60 of 60 (100%) done" in browser.text("#content-main")
        assert {Workflow.objects.get(pk=each.pk).state for each in chosen} == {"paused"}
        assert_state(other, "paused")
        assert OperatorAction.objects.filter(reason="stocktaking", actor="root").count() == 60

    def test_start_one(self, browser: Browser) -> None:
        order = Order.objects.create()
        browser.open(url(LIST))
        browser.leave_by(browser.link("Start a workflow".upper()).click)
        browser.find('#id_type option[value="testapp.FiveSteps"]').click()
        (model,) = [each for each in browser.all("#id_hero_model option") if "order" in each.text.lower()]
        model.click()
        browser.find("#id_hero_key").send_keys(str(order.pk))
        browser.leave_by(browser.button("Start").click)
        assert "Started." in browser.text(".messagelist")
        assert str(order) in browser.text(".gd-head")

    def test_the_panel_of_a_hero_leads_to_an_action_and_back(self, browser: Browser) -> None:
        (workflow,) = started()
        hero = url("testapp_order_change", workflow.hero_id)
        browser.open(hero)
        browser.leave_by(browser.link("Pause").click)
        browser.leave_by(browser.button("Pause").click)
        assert browser.path == hero
        assert_state(workflow, "paused")


class TestKeyboard:
    def test_a_failed_workflow_is_found_and_resumed_at_a_step_without_a_mouse(self, browser: Browser) -> None:
        parcel = paused_parcel()
        browser.open(url(LIST) + "?state=paused")
        self.go_to(browser, f"Parcel {parcel.pk}")
        browser.leave_by(lambda: browser.press(ENTER))
        self.go_to(browser, "Resume at a step…")
        browser.leave_by(lambda: browser.press(ENTER))
        self.go_to(browser, "authorize")
        browser.press(SPACE, DOWN, DOWN)  # over "ship", and not over the gravestone, to "send_receipt"
        self.go_to(browser, "id_reason")
        browser.press(*"delivered")
        browser.leave_by(lambda: browser.press(ENTER))
        assert_step(parcel, "send_receipt", "scheduled")

    @staticmethod
    def go_to(browser: Browser, name: str) -> None:
        """Press Tab until the focus is on the element with that text, value or id, and check that it is visible."""
        script = """
            const at = document.activeElement;
            const style = getComputedStyle(at);
            const is_seen = style.outlineStyle !== "none" || style.boxShadow !== "none" || at.matches(":focus-visible");
            return [[at.innerText, at.value, at.id], is_seen];
        """
        for _ in range(80):
            browser.press(TAB)
            names, is_seen = browser.driver.execute_script(script)
            if name in [(each or "").strip() for each in names]:
                assert is_seen
                return
        raise AssertionError(f"{name!r} cannot be reached by Tab")


class TestJSON:
    pytestmark = pytest.mark.skipif(
        find_spec("django_json_widget") is None, reason="django-json-widget is not installed"
    )

    def test_is_shown_as_a_tree(self, browser: Browser) -> None:
        parcel = paused_parcel()
        browser.open(url(PAGE, parcel.pk))
        browser.wait_for(lambda: browser.all(".gd-viewer .jsoneditor"))
        assert "JD0146" in browser.text(".gd-viewer")

    def test_is_edited_and_sent(self, browser: Browser) -> None:
        parcel = Parcel.start(Order.objects.create())
        run_next_step(parcel)
        run_next_step(parcel)
        browser.open(url(ACT, parcel.pk, "signal"))
        browser.wait_for(lambda: browser.all(".gd-editor .jsoneditor"))
        browser.find("#id_name").send_keys("parcel_scanned")
        browser.find(".gd-editor .jsoneditor-modes button").click()
        texts = [each for each in browser.all(".jsoneditor-contextmenu button") if each.text == "Text"]
        texts[0].click()
        text = browser.find(".gd-editor textarea.jsoneditor-text")
        text.clear()
        text.send_keys('{"tracking": "JD0147"}')
        browser.leave_by(browser.button("Send a signal").click)
        assert parcel.signals.get().payload == {"tracking": "JD0147"}
        assert_step(parcel, "ship", "scheduled")
        assert OperatorAction.objects.get(workflow=parcel).action == "signal"


def _contrast(browser: Browser, selector: str) -> float:
    """Return the contrast of a text with its background, by the formula of the accessibility guidelines."""
    script = """
        const element = document.querySelector(arguments[0]);
        let behind = element;
        while (behind && /rgba\\(0, 0, 0, 0\\)|transparent/.test(getComputedStyle(behind).backgroundColor)) {
          behind = behind.parentElement;
        }
        const background = behind ? getComputedStyle(behind).backgroundColor : "rgb(255, 255, 255)";
        return [getComputedStyle(element).color, background];
    """
    text, background = (_luminance(each) for each in browser.driver.execute_script(script, selector))
    return (max(text, background) + 0.05) / (min(text, background) + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(each) / 255 for each in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue

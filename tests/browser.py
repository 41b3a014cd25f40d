"""A headless Chromium for tests, with the errors on its console."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

__all__ = ["Browser", "started_browser", "why_no_browser"]

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def why_no_browser() -> str | None:
    """Return why there is no browser here, or None."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed"
    missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"there is no {' and no '.join(missing)} on this machine" if missing else None


class Browser:
    """A logged-in user of the admin of a live server.

    Attributes
    ----------
    driver
        Selenium's.
    """

    def __init__(self, driver: Any, server: LiveServer) -> None:
        self.driver = driver
        self.server = server

    def log_in(self) -> None:
        client = Client()
        client.force_login(User.objects.create_superuser("root"))
        self.open("/static/admin/css/base.css")  # a cookie needs its site
        cookie = client.cookies["sessionid"].value
        self.driver.add_cookie({"name": "sessionid", "value": cookie, "path": "/"})

    def open(self, path: str) -> None:
        self.driver.get(self.server.url + path)

    @property
    def path(self) -> str:
        address: str = self.driver.current_url
        return address.removeprefix(self.server.url)

    def find(self, selector: str) -> Any:
        """Return the only element that matches."""
        (found,) = self.all(selector)
        return found

    def all(self, selector: str) -> list[Any]:
        from selenium.webdriver.common.by import By

        found: list[Any] = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found

    def link(self, text: str) -> Any:
        from selenium.webdriver.common.by import By

        return self.driver.find_element(By.LINK_TEXT, text)

    def button(self, text: str) -> Any:
        (found,) = [
            each for each in self.all("button, input[type=submit]") if text in (each.text or _value(each))
        ]
        return found

    def text(self, selector: str = "body") -> str:
        text: str = self.find(selector).text
        return text

    def leave_by(self, act: Any) -> None:
        """Do something that leaves the page, and wait until the next page has loaded."""
        from selenium.webdriver.support.ui import WebDriverWait

        mark = "window.gdLeft = false"
        self.driver.execute_script(mark)
        act()
        is_there = "return window.gdLeft === undefined && document.readyState === 'complete'"
        WebDriverWait(self.driver, 30).until(lambda driver: driver.execute_script(is_there))

    def wait_for(self, condition: Any) -> Any:
        from selenium.webdriver.support.ui import WebDriverWait

        return WebDriverWait(self.driver, 30).until(lambda _driver: condition())

    def press(self, *keys: str) -> None:
        """Press keys at the current focus."""
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def complaints(self) -> list[str]:
        """Return the new errors on the browser's console: violations of the policy, failures, missing files."""
        entries = self.driver.get_log("browser")
        return [each["message"] for each in entries if "favicon.ico" not in each["message"]]

    def theme(self, name: str) -> None:
        """Set the system's preferred theme: "light" or "dark"."""
        media = {"features": [{"name": "prefers-color-scheme", "value": name}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)


def _value(element: Any) -> str:
    return element.get_attribute("value") or ""


@contextlib.contextmanager
def started_browser(profile: Path) -> Iterator[Any]:
    """Start a browser with its own profile."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    reason = why_no_browser()
    if reason is not None:
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1200,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()

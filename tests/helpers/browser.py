"""A real browser for pages: headless Chromium, driven by Selenium, which notices requests and errors."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MISSING = "no Chromium here: apt-get install chromium chromium-driver (on Debian) makes the pages' tests run"
WIDTHS = {"phone": (390, 844), "screen": (1400, 900)}


class Browser:
    """One window. `open` shows a file; what the page asked of any server, and its errors, are kept."""

    def __init__(self, profile: Path):
        options = Options()
        options.binary_location = str(PROGRAM)
        for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
            options.add_argument(flag)
        for flag in ("--no-first-run", "--disable-component-update", "--disable-background-networking"):
            options.add_argument(flag)
        options.add_argument(f"--user-data-dir={profile}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
        self.driver.set_page_load_timeout(60)

    def open(self, path: Path, size: str = "screen", scheme: str = "light") -> None:
        """Show a page in a window of this size."""
        self._metrics(*WIDTHS[size])
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        )
        self.driver.get(path.absolute().as_uri())

    def resize(self, size: str) -> None:
        self._metrics(*WIDTHS[size])

    def _metrics(self, width: int, height: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def run(self, script: str, *arguments: Any) -> Any:
        """The value of a script's `return`."""
        return self.driver.execute_script(script, *arguments)

    def text(self, selector: str = "body") -> str:
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def count(self, selector: str) -> int:
        return self.run("return document.querySelectorAll(arguments[0]).length", selector)

    def click(self, selector: str) -> None:
        self.run("document.querySelector(arguments[0]).click()", selector)

    def move(self, selector: str, value: float) -> None:
        """Move a slider, or choose from a list, as a hand would."""
        self.run(
            "const input = document.querySelector(arguments[0]); input.value = arguments[1];"
            "for (const kind of ['input', 'change']) input.dispatchEvent(new Event(kind, {bubbles: true}));",
            selector,
            str(value),
        )

    def errors(self) -> list[str]:
        """What the console complained about since the last call."""
        return [line["message"] for line in self.driver.get_log("browser") if line["level"] in ("SEVERE", "WARNING")]

    def requests(self) -> list[str]:
        """The addresses asked for since the last call, but for the pages themselves and their own data."""
        sent = [json.loads(line["message"])["message"] for line in self.driver.get_log("performance")]
        asked = [each["params"]["request"]["url"] for each in sent if each["method"] == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith(("file:", "data:", "blob:", "chrome:"))]

    def wider_than_the_window(self) -> list[str]:
        """The elements that stick out to the right, but for those in a box of their own that scrolls."""
        return self.run(
            "const wide = document.documentElement.clientWidth;"
            "return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > wide + 1"
            " && e.getBoundingClientRect().width > 1"
            " && !e.closest('.wide') && !e.closest('svg *')).map(e => e.outerHTML.slice(0, 80))"
        )

    def picture(self, path: Path, whole: bool = True) -> None:
        """A screenshot, of the whole page or of what the window shows."""
        if whole:
            height = self.run("return document.documentElement.scrollHeight")
            self._metrics(self.run("return innerWidth"), min(height, 16_000))
        self.driver.save_screenshot(str(path))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if PROGRAM is None or DRIVER is None:
        pytest.skip(MISSING)
    os.environ.setdefault("SE_AVOID_STATS", "true")  # Selenium reports its use otherwise
    window = Browser(tmp_path_factory.mktemp("profile"))
    yield window
    window.driver.quit()

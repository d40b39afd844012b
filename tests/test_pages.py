"""A page as such: nothing of its data is markup, and nothing is asked of any server."""

import hashlib
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from helpers.browser import Browser, browser  # noqa: F401 (a fixture)
from tenuto.pages import page

ASSETS = Path(page.__file__).parent / "assets"
EVIL = "</script><script>document.title = 'owned'</script><img src=x onerror=\"document.title='owned'\">"
SHOWS = 'document.body.append(topBar(DATA.name), el("p", {}, DATA.name, String(DATA.number)));'


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A page with a hostile name."""
    plain = page.asset
    monkeypatch.setattr(page, "asset", lambda name: SHOWS if name == "shows.js" else plain(name))
    path = tmp_path / "page.html"
    page.write(path, EVIL, "shows.js", {"name": EVIL, "number": 7})
    return path


def test_others_scripts_are_the_published_ones():
    """By the digests in the table beside them, which names every file."""
    listed = dict(
        re.findall(r"^\| `([\w.]+)` .* \| `([0-9a-f]{64})` \|$", (ASSETS / "vendor/README.md").read_text(), re.M)
    )
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (ASSETS / "vendor").glob("*.js")}
    assert found == listed
    assert set(found) == {Path(name).name for name in page.VENDOR}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("</script><!--", '"\\u003c/script>\\u003c!--"'),
        ({"a": math.nan, "b": [math.inf, 1.0]}, '{"a":null,"b":[null,1]}'),
        (np.asarray([[0.1, 2.0]], np.float32), "[[0.100000001,2]]"),
        ("\u2028\x00", '"\\u2028\ufffd"'),
        ((True, None, 3), "[true,null,3]"),
    ],
)
def test_data_are_json_without_markup(value: object, text: str):
    assert page.safe_json(value) == text
    assert json.loads(page.safe_json(value)) is not Ellipsis


def test_single_precision_survives():
    numbers = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    assert (np.asarray(json.loads(page.safe_json(numbers)), np.float32) == numbers).all()


def test_a_hostile_name_is_text_and_nothing_is_asked_of_a_server(shown: Path, browser: Browser):  # noqa: F811
    browser.requests()
    browser.open(shown)
    assert EVIL in browser.text()
    assert browser.run("return document.title") == EVIL
    assert browser.errors() == []
    assert browser.requests() == []


def test_scripts_that_are_not_the_pages_own_do_not_run(shown: Path, browser: Browser):  # noqa: F811
    """Were a name to become markup after all, the page's policy would still forbid what it says."""
    browser.open(shown)
    browser.run(
        "const made = document.createElement('script'); made.textContent = 'window.ran = 1';document.body.append(made)"
    )
    browser.run("document.body.insertAdjacentHTML('beforeend', '<img src=\"https://example.org/x.png\">')")
    assert browser.run("return window.ran") is None
    said = " ".join(browser.errors())
    assert "Executing inline script violates the following Content Security Policy directive" in said
    assert "Loading the image 'https://example.org/x.png' violates" in said

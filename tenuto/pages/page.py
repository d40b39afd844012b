"""A page: one HTML file with its data, scripts and styles inside, which asks nothing of any server.

The data are JSON, and scripts make text of them, never markup. The page's own policy forbids requests, and scripts
other than those written here, so that a name such as `<script>` in a stranger's run stays a name.
"""

import base64
import functools
import hashlib
import html
import json
import math
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import tenuto
from tenuto import files
from tenuto.errors import legible

VENDOR = ("vendor/d3.min.js", "vendor/plot.umd.min.js")
BASE = "base.js"
DIGITS = 9  # of a number: a float32 is whole with these; who wants a smaller page rounds before


@functools.cache
def asset(name: str) -> str:
    """A file of `assets/`."""
    return resources.files("tenuto.pages").joinpath("assets", name).read_text(encoding="utf-8")


def render(title: str, script: str | Sequence[str], data: dict[str, Any]) -> str:
    """The page on which this script of `assets/`, or these, show the data."""
    own = [script] if isinstance(script, str) else script
    scripts = [*map(asset, (*VENDOR, BASE, *own))]
    allowed = " ".join(f"'sha256-{_digest(text)}'" for text in scripts)
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta name="generator" content="tenuto {html.escape(tenuto.__version__)}">',
            '<link rel="icon" href="data:,">',
            f"<title>{html.escape(legible(title))}</title>",
            f"<style>\n{asset('base.css')}</style>",
            "</head>",
            "<body>",
            "<noscript>This page is drawn by scripts, which are part of it. Allow them to see it.</noscript>",
            f'<script type="application/json" id="data">{safe_json(data)}</script>',
            *(f"<script>{text}</script>" for text in scripts),
            "</body>",
            "</html>",
            "",
        ]
    )


def write(path: Path, title: str, script: str | Sequence[str], data: dict[str, Any]) -> None:
    """Write the page to a file, whole."""
    files.write_text(path, render(title, script, data))


def safe_json(data: Any) -> str:
    """JSON that can stand inside of a script element: without <, with null for numbers that are not finite."""
    text = json.dumps(_plain(data), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _plain(value: Any) -> Any:
    """Arrays as lists, text as any browser can show it, numbers without needless digits."""
    if isinstance(value, dict):
        return {legible(str(name)): _plain(each) for name, each in value.items()}
    if isinstance(value, str):
        return legible(value)
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return short(value)
    return value


def short(number: float) -> float | int | None:
    """The number with DIGITS digits; None if it is not finite."""
    if not math.isfinite(number):
        return None
    rounded = float(f"{number:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()

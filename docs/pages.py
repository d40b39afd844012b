"""A hook of mkdocs: pages that are programs. The report of the kept results is made whenever the site is built, so that
it shows what results/ holds; the inspector shows inspector.json, which `inspected.py` made."""

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
REPORT, INSPECTOR = "report.html", "inspector.html"
INSPECTED = ROOT / "docs" / "inspector.json"


def on_files(files: Any, config: Any) -> Any:
    """Add the inspector and the report, where there is something for them to show."""
    reported = any(RESULTS.glob("*/experiment.json"))
    if reported or INSPECTED.exists():
        from tenuto.pages import inspector, page, report  # which take a moment to import

    if INSPECTED.exists():
        inspected = json.loads(INSPECTED.read_text())
        content = page.render(inspector.TITLE, inspector.SCRIPTS, inspected)
        files.append(File.generated(config, INSPECTOR, content=content))
    if reported:
        content = page.render(report.TITLE, report.SCRIPT, report.build([RESULTS]))
        files.append(File.generated(config, REPORT, content=content))
    return files

"""A hook of mkdocs: pages that are programs. The report of the kept results is made anew whenever the site is built, so
that it shows what results/ holds."""

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
REPORT = "report.html"


def on_files(files: Any, config: Any) -> Any:
    """Add the report, where there are results."""
    if any(RESULTS.glob("*/experiment.json")):
        from tenuto.pages import page, report  # which take a moment to import

        content = page.render(report.TITLE, report.SCRIPT, report.build([RESULTS]))
        files.append(File.generated(config, REPORT, content=content))
    return files

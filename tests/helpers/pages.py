"""The Python that pages show, and where it runs."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def python_in(page: Path) -> str:
    """All Python of a page, as one program: later blocks may use what earlier ones made."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
    included = re.compile(r'^--8<-- "(.*)"$', re.MULTILINE)
    return "\n".join(included.sub(lambda found: (ROOT / found[1]).read_text(), block) for block in blocks)


def needs_sb3(source: str) -> bool:
    """Such a program runs in `tests/test_sb3_learners.py`, where Stable-Baselines3 is installed."""
    return "stable_baselines3" in source

"""Makes docs/inspector.json, the data of the site's inspector: UTE and TempoRL on the lava bridge. Some minutes on 2
cores.

python docs/inspected.py
"""

import tempfile
from pathlib import Path

import tenuto
from tenuto import files
from tenuto.pages import inspector, page

TO = Path(__file__).with_name("inspector.json")
AGENTS = {"ute": 8, "temporl": 8}  # and their snapshots

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        runs = [Path(place) / agent for agent in AGENTS]
        for run, (agent, kept) in zip(runs, AGENTS.items(), strict=True):
            tenuto.train("lava-bridge", agent, episodes=1_200, seeds=1, snapshots=kept, out=run)
        files.write_text(TO, page.safe_json(inspector.build(runs)) + "\n")
    print(f"{TO.name}: {TO.stat().st_size / 1e3:.0f} KB")

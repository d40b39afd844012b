"""Sweeps: many values of the fields of a run, and how well each does. `plan.py` reads what is wanted from a file,
`search.py` proposes points, `trials.py` makes jobs of them and reads their scores, `report.py` shows them."""

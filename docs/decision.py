"""Draws docs/decision.svg: a decision of length 4, and the ten spans it shows.

python docs/decision.py
"""

from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

LENGTH = 4
BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#666666"


def main() -> None:
    figure = Figure(figsize=(7.6, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for i in range(LENGTH + 1):
        axis.plot(i, 0, "o", markersize=24, color="white", markeredgecolor=GREY)
        axis.text(i, 0, f"$s_{i}$", ha="center", va="center", fontsize=11)
    for i in range(LENGTH):
        axis.annotate("", (i + 0.8, 0), (i + 0.2, 0), arrowprops={"arrowstyle": "->", "color": ORANGE, "linewidth": 2})
        axis.text(i + 0.5, 0.28, f"$a$, $r_{i}$", ha="center", fontsize=9, color=ORANGE)
    axis.text(0, 0.85, f"decision: action $a$, length {LENGTH}", ha="center", fontsize=9)
    axis.annotate("", (0, 0.33), (0, 0.75), arrowprops={"arrowstyle": "->", "color": "black"})
    axis.text(LENGTH, 0.85, "next decision", ha="center", fontsize=9)
    axis.annotate("", (LENGTH, 0.33), (LENGTH, 0.75), arrowprops={"arrowstyle": "->", "color": "black"})
    level = -0.8
    for length in range(LENGTH, 0, -1):
        for start in range(LENGTH - length + 1):
            shade = 0.35 + 0.65 * length / LENGTH
            axis.plot([start, start + length], [level, level], color=BLUE, alpha=shade, linewidth=3, marker="|")
            level -= 0.24
        axis.text(
            LENGTH + 0.25, level + 0.24 * (LENGTH - length + 1) / 2 + 0.1, f"length {length}", fontsize=9, color=BLUE
        )
        level -= 0.1
    axis.set_xlim(-0.9, LENGTH + 1.0)
    axis.set_ylim(level, 1.1)
    axis.set_axis_off()
    with matplotlib.rc_context({"svg.hashsalt": "tenuto"}):
        figure.savefig(Path(__file__).with_name("decision.svg"), metadata={"Date": None}, transparent=False)


if __name__ == "__main__":
    main()

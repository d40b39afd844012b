"""Makes docs/hold.gif: UTE crosses the lava bridge, and the steps it holds are seen. Some minutes on 2 cores.

python docs/hold.py
"""

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
from PIL import Image, ImageDraw, ImageFont

import tenuto

SCALE, TEXT, FIELD = 4, 64, 26  # of the map; heights of the text and of the fields below it
WORDS = ("left", "up", "right", "down")  # the actions of a lava map
WHITE, GREY, BLUE, YELLOW, PALE = "#FFFFFF", "#444444", "#0072B2", "#E69F00", "#DDDDDD"
MILLISECONDS, LAST = 450, 2_500  # that a step and the end are shown


class Moment(NamedTuple):
    """What is seen after a step: the picture, the cell, and what is held."""

    picture: Any
    cell: int
    action: int
    length: int
    done: int


def film(policy: tenuto.Policy) -> list[Moment]:
    """One episode on the bridge, step by step."""
    env = gymnasium.make("tenuto/Lava-v0", map="bridge", render_mode="rgb_array")
    obs, _ = env.reset(seed=0)
    seen, over = [Moment(env.render(), int(obs), 0, 0, 0)], False
    while not over:
        action, length = policy.decide(obs)
        for done in range(1, length + 1):
            obs, _, terminated, truncated, _ = env.step(action)
            seen.append(Moment(env.render(), int(obs), int(action), length, done))
            over = terminated or truncated
            if over:
                break
    return seen


def draw(seen: list[Moment], columns: int, max_length: int) -> Image.Image:
    """The last of these moments, with the way so far: a dot where a decision was made, a line where it was held."""
    now, tile = seen[-1], seen[-1].picture.shape[1] // columns * SCALE
    width, height = (SCALE * side for side in (now.picture.shape[1], now.picture.shape[0]))
    image = Image.new("RGB", (width, height + TEXT + FIELD), WHITE)
    image.paste(Image.fromarray(now.picture).resize((width, height), Image.Resampling.NEAREST), (0, TEXT))
    pen = ImageDraw.Draw(image)
    way = [((m.cell % columns + 0.5) * tile, (m.cell // columns + 0.5) * tile + TEXT) for m in seen]
    pen.line(way, fill=BLUE, width=5)
    starts = [i for i, moment in enumerate(seen[1:]) if moment.done == 1]
    for x, y in (way[i] for i in starts):
        pen.ellipse((x - 11, y - 11, x + 11, y + 11), fill=YELLOW, outline=GREY, width=2)
    steps = f"{now.length} step{'s' if now.length > 1 else ''}"
    title = f"decision {len(starts)}: {WORDS[now.action]}, for {steps}" if now.length else "UTE on the lava bridge"
    pen.text((10, 6), title, fill=GREY, font=ImageFont.load_default(26))
    pen.text((10, 38), f"{len(seen) - 1} steps, {len(starts)} decisions", fill=GREY, font=ImageFont.load_default(18))
    for i in range(max_length):
        colour = BLUE if i < now.done else YELLOW if i < now.length else PALE
        left, right = width * i // max_length, width * (i + 1) // max_length
        pen.rectangle((left + 2, height + TEXT + 4, right - 3, height + TEXT + FIELD - 2), fill=colour)
    return image


def main() -> None:
    run = tenuto.train("lava-bridge", agent="ute", episodes=1_200, seeds=1, lam=-1.5)
    seen = film(run[0])
    pictures = [draw(seen[:i], 10, run[0].max_length) for i in range(1, len(seen) + 1)]
    small = [picture.quantize(32, dither=Image.Dither.NONE) for picture in pictures]
    times = [MILLISECONDS] * (len(small) - 1) + [LAST]
    small[0].save(
        Path(__file__).with_name("hold.gif"),
        save_all=True,
        append_images=small[1:],
        duration=times,
        loop=0,
        optimize=True,
    )
    print(f"{len(seen) - 1} steps, {sum(m.done == 1 for m in seen)} decisions")


if __name__ == "__main__":
    main()

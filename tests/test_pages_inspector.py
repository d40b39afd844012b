"""The inspector: what it shows and computes for any λ is what Python computes, on maps and in recorded episodes."""

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import tenuto
from helpers.browser import Browser, browser  # noqa: F401 (a fixture)
from helpers.commands import complaint, tenuto_says
from helpers.runs import LINE, SMALL, UTE
from helpers.trees import assert_same, lane_of
from tenuto import Run, UserError, insight, play
from tenuto.cli.inspect import server_of
from tenuto.envs import Lava
from tenuto.experiments import exact
from tenuto.pages import inspector, page
from tenuto.runs import folders, snapshots
from tenuto.runs.jobs import job_for

ROWS = ("S..G", ".##.", "....")
EVIL = "<script>document.title='owned'</script>"
LAMBDAS = (-3.0, -0.75, 0.0, 0.5, 3.0)


@pytest.fixture(scope="module")
def lava(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """UTE with a hostile name on a small map, at two λ, with five snapshots."""
    place = tmp_path_factory.mktemp("lava")
    (place / "map.txt").write_text("\n".join(ROWS))
    more: dict[str, Any] = SMALL | {"seeds": 2, "steps": 400, "lam": [0.5, -1.0], "snapshots": 5, "name": EVIL}
    return tenuto.train(f"lava:{place / 'map.txt'}", UTE, out=place / "<b>run", **more)


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """UTE on a line that draws itself."""
    return tenuto.train(LINE, UTE, out=tmp_path_factory.mktemp("line") / "run", **SMALL)


@pytest.fixture(scope="module")
def shown(lava: Run, line: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "inspector.html"
    inspector.write([lava.folder, line.folder], path)
    return path


class Truth(NamedTuple):
    """What Python makes of a lane's networks on the map."""

    values: np.ndarray  # (cells, actions, heads, lengths)
    actions: np.ndarray

    def lengths(self, lam: float) -> np.ndarray:
        mine = self.values[np.arange(len(self.actions)), self.actions]  # (cells, heads, lengths)
        return 1 + (mine.mean(1) + lam * mine.std(1)).argmax(1)


def truth(run: Run, lane: int, snapshot: int = -1) -> Truth:
    env, task = run.job.env, run.job.tasks[lane]
    assert isinstance(env, Lava)
    networks = lane_of(snapshots.read(run.folder, run.job)[snapshot].networks, lane)
    found = insight.look_at(task, networks, np.flatnonzero(env.walkable()).astype(np.uint16), True)
    return Truth(found.values, found.action)


def tiles(window: Browser) -> list[int]:
    """The lengths on the first map, state by state."""
    return window.run(
        "return [...document.querySelectorAll('.side')][0].querySelectorAll('[data-state]').length"
        " && [...document.querySelectorAll('.side')[0].querySelectorAll('[data-state]')]"
        ".sort((a, b) => a.dataset.state - b.dataset.state).map(each => Number(each.dataset.length))"
    )


def numbers(window: Browser) -> list[list[str]]:
    """The table of the heads of the first agent: length, mean, spread, mean + λ·spread, exact."""
    return window.run(
        "return [...document.querySelector('.side table.numbers tbody').rows]"
        ".map(row => [...row.cells].map(cell => cell.textContent))"
    )


def spelled(number: float) -> str:
    return f"{number:.4f}".replace("-0.0000", "0.0000").replace("-", "−")


# What it says


@pytest.mark.parametrize("lane", [0, 1])
def test_values_of_the_page_are_what_training_decides_by(lava: Run, lane: int):
    """At the λ of the lane, the lengths that follow from them are those of its policy."""
    lane = 2 * lane  # the first seed of each λ
    policy, found = lava[lane], truth(lava, lane)
    cells = np.flatnonzero(lava.job.env.walkable())  # type: ignore[attr-defined]
    assert [policy.decide(cell) for cell in cells] == [*zip(found.actions, found.lengths(policy.lam), strict=True)]
    assert len(set(found.lengths(3.0).tolist()) | set(found.lengths(-3.0).tolist())) > 1  # else this says little


def test_moving_lam_changes_the_whole_map_to_what_python_computes(lava: Run, shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    found, seen = truth(lava, 0), set()
    for lam in LAMBDAS:
        browser.move("input.lam", lam)
        assert tiles(browser) == found.lengths(lam).tolist()
        assert browser.text("output.lam-said") == f"{lam:.2f}".replace("-", "−")
        seen.add(tuple(tiles(browser)))
    assert len(seen) > 1
    browser.click("button.as-trained")
    assert tiles(browser) == found.lengths(0.5).tolist()


def test_a_click_shows_what_the_heads_say_of_that_state(lava: Run, shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    found, env = truth(lava, 0), lava.job.env
    assert isinstance(env, Lava)
    exactly = exact.options(env, float(lava.job.tasks[0].plan.gamma), 3).value[np.flatnonzero(env.walkable())]
    for state in (0, 4, 7):
        browser.run(
            "document.querySelector(`.side [data-state='${arguments[0]}']`)"
            ".dispatchEvent(new MouseEvent('click', {bubbles: true}))",
            state,
        )
        mine, action = found.values[state, found.actions[state]], found.actions[state]
        mean, spread = mine.mean(0), mine.std(0)
        expected = np.stack([mean, spread, mean + 0.5 * spread, exactly[state, action]], 1)
        assert numbers(browser) == [[str(j), *map(spelled, row)] for j, row in enumerate(expected, 1)]


def test_the_episode_of_a_map_is_walked_as_the_environment_would(lava: Run, shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    found, env = truth(lava, 0), lava.job.env
    assert isinstance(env, Lava)
    to, reward, ends = exact.moves(env)
    state_at = {int(cell): state for state, cell in enumerate(np.flatnonzero(env.walkable()))}
    for lam in LAMBDAS:
        browser.move("input.lam", lam)
        lengths = found.lengths(lam)
        cell, total, steps, decisions, over = int(env.start), 0.0, 0, 0, False
        while not over and steps < env.limit:
            action, length = found.actions[state_at[cell]], lengths[state_at[cell]]
            decisions += 1
            for _ in range(length):
                total, over, cell = total + reward[cell, action], bool(ends[cell, action]), int(to[cell, action])
                steps += 1
                if over or steps == env.limit:
                    break
        said = f"return {total:.3f}, {steps} steps, {decisions} decisions".replace("-", "−")
        assert said in browser.text(".side .player .said")


def test_training_can_be_scrubbed_through(lava: Run, shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    kept = snapshots.read(lava.folder, lava.job)
    for number, snapshot in enumerate(kept):
        browser.move("input.snapshot", number)
        assert tiles(browser) == truth(lava, 0, number).lengths(0.5).tolist()
        assert browser.text("output.snapshot-said") == f"after {snapshot.t} steps"


def test_a_recorded_episode_is_that_of_the_policy(line: Run, shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    browser.move("select[aria-label='Second agent']", 2)
    played = play.play(line[0], play.maker_of(line.job, 0)(), 1)[0]
    side = ".side[aria-label='Second agent'] "
    said = f"return {played.episode_return:.3f}, {played.steps} steps, {played.decisions} decisions"
    assert said in browser.text(side + ".player .said")
    pictures = set()
    for step in range(played.steps + 1):
        browser.move(side + "input.step", step)
        pictures.add(browser.run("return document.querySelector(arguments[0]).src", side + "img.picture"))
    assert len(pictures) > 3
    blocks = browser.run("return document.querySelectorAll(arguments[0] + ' .strip rect:not(.strip-now)').length", side)
    assert blocks == played.steps


# What it does


def test_agents_are_shown_side_by_side_and_put_away(shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    assert browser.count(".side svg.map") == 2
    browser.move("select[aria-label='Second agent']", "")
    assert browser.count(".side svg.map") == 1
    assert browser.errors() == []


def test_a_step_is_played_and_paused(shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    browser.click(".side button.play")
    assert browser.text(".side button.play") == "Pause"
    browser.click(".side button.play")
    assert browser.text(".side button.play") == "Play"


def test_arrow_keys_move_from_state_to_state(shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    press = (
        "document.querySelector('.side svg.map').dispatchEvent(new KeyboardEvent('keydown', {key: arguments[0],"
        " bubbles: true})); return Number(document.querySelector('.side .chosen').dataset.state)"
    )
    moved = [browser.run(press, key) for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowDown", "ArrowUp")]
    assert moved == [1, 1, 0, 3, 0]  # below the second place is lava


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", ["phone", "screen"])
def test_it_is_whole_and_silent(shown: Path, browser: Browser, size: str, scheme: str):  # noqa: F811
    browser.requests(), browser.errors()
    browser.open(shown, size, scheme)
    browser.move("select[aria-label='Second agent']", 2)
    assert browser.wider_than_the_window() == []
    assert browser.errors() == []
    assert browser.requests() == []
    assert browser.count("svg:not([aria-label])") == 0
    assert browser.count("input:not([id])") == 0


def test_hostile_names_are_text(shown: Path, browser: Browser):  # noqa: F811
    browser.open(shown)
    assert EVIL in browser.text()
    assert browser.run("return document.title") == inspector.TITLE
    assert shown.stat().st_size < 3_000_000


# Snapshots


def test_snapshots_lie_evenly_between_the_start_and_the_end(lava: Run):
    assert [each.t for each in snapshots.read(lava.folder, lava.job)] == [0, 100, 200, 300, 400]


def test_the_last_snapshot_is_what_was_learned_and_the_first_what_was_before(lava: Run):
    first, *_, last = snapshots.read(lava.folder, lava.job)
    assert_same(last.networks, folders.read_networks(lava.folder, lava.job))
    before, after = (jax.tree.leaves(each.networks.extension) for each in (first, last))
    assert not any(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


def test_snapshots_do_not_change_what_is_learned(line: Run, tmp_path: Path):
    watched = tenuto.train(LINE, UTE, out=tmp_path / "run", snapshots=4, **SMALL)
    assert_same(folders.read_networks(watched.folder), folders.read_networks(line.folder))
    assert [each.t for each in snapshots.read(watched.folder, watched.job)] == [0, 20, 40, 60]


def test_a_run_that_goes_on_removes_the_snapshots_after_its_checkpoint(tmp_path: Path):
    """Chunks may end elsewhere this time."""
    job = job_for("chain-4", "random", seeds=1, episodes=4, snapshots=3)
    for t in (0, 40, 80):
        (tmp_path / f"snapshot-{t:012}.npz").touch()
    snapshots.Snapshots(job, tmp_path, "", 40, 0.5)
    assert [path.name for path in snapshots.paths(tmp_path)] == [
        "snapshot-000000000000.npz",
        "snapshot-000000000040.npz",
    ]


# What is refused, and what cannot be shown


def test_errors_say_what_to_do(lava: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(UserError, match=r"end its name with \.html"):
        inspector.write([lava.folder], tmp_path / "page.pdf")
    with pytest.raises(UserError, match="--lanes must be 0 to 3"):
        inspector.build([lava.folder], [4])
    assert "is not a run of tenuto" in complaint(capsys, "inspect", tmp_path, "--out", tmp_path / "page.html")


def test_the_command_writes_one_file(lava: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "page.html"
    assert str(path) in tenuto_says(capsys, "inspect", lava.folder, "--lanes", 3, "--out", path)
    assert [each.name for each in tmp_path.iterdir()] == ["page.html"]
    assert [each["lane"] for each in inspector.build([lava.folder], [3])["subjects"]] == ["lam -1.0, seed 1"]


def test_an_environment_that_cannot_be_drawn_is_shown_without_pictures(monkeypatch: pytest.MonkeyPatch, line: Run):
    monkeypatch.setattr(play, "drawn", lambda env: (_ for _ in ()).throw(UserError("the environment cannot be drawn")))
    (subject,) = inspector.build([line.folder])["subjects"]
    assert subject["film"]["pictures"] == []
    assert any("cannot be drawn" in note for note in subject["notes"])


def test_too_many_numbers_are_thinned_out(monkeypatch: pytest.MonkeyPatch, lava: Run):
    whole = inspector.build([lava.folder], [0])["subjects"][0]["values"]["shape"]
    assert whole == (5, 9, 4, 3, 3)
    monkeypatch.setattr(inspector, "MOST_NUMBERS", 9 * 3 * 3 * 2)
    subject = inspector.build([lava.folder], [0])["subjects"][0]
    assert subject["values"]["shape"] == (2, 9, 1, 3, 3)
    assert subject["times"] == [0, 400]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "page.html"
    page.write(path, "title", "inspector.js", {})
    with server_of(path) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_page_alone_is_served_to_this_machine_alone(served: str, tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    with urllib.request.urlopen(f"{served}/") as answer:
        assert answer.read() == (tmp_path / "page.html").read_bytes()
    for path in ("/secret", "/../secret", f"/{tmp_path}/secret"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(served + path)
        assert refused.value.code == 404

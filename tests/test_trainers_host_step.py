"""What the host trainer hands to the device at every step, and that it stays where it lies."""

import dataclasses
import re
from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from helpers.trees import assert_same
from tenuto.envs.gym.vector import LaneError, Observed
from tenuto.runs.jobs import job_for
from tenuto.trainers import buffers, host, host_step
from tenuto.trainers.program import EnvError

LANES = 3
few = settings(max_examples=25, deadline=None)  # each compiles


@st.composite
def trees(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Leaves of all kinds that lanes have, some of them too large to be joined with others."""
    shapes = arrays.array_shapes(min_dims=0, max_dims=2, min_side=1, max_side=5)
    kinds = st.sampled_from([np.float32, np.int32, np.bool_, np.uint8, np.uint16])
    leaves = draw(st.lists(st.tuples(kinds, shapes), min_size=1, max_size=6))
    return {str(i): draw(arrays.arrays(kind, (LANES, *shape))) for i, (kind, shape) in enumerate(leaves)}


@few
@given(trees())
def test_a_tree_that_is_handed_over_comes_out_as_it_was(tree: dict[str, np.ndarray]):
    whole = jax.tree.map(jnp.asarray, tree)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(buffers, "SMALL_LEAF", 8)
        layout = buffers.Layout.of(whole)
        leaves = layout.pack(whole)
        assert_same(layout.unpack(leaves), whole)
        for i, (leaf, small) in enumerate(zip(whole.values(), layout.small(), strict=True)):
            assert small == (leaf.size // LANES <= 8 and leaf.dtype in (jnp.float32, jnp.int32, jnp.bool_))
            if not small:
                assert leaves[layout.index(i)] is leaf, "what is large is not copied"
        assert len(leaves) == sum(not small for small in layout.small()) + any(layout.small())


@few
@given(trees())
def test_the_device_reads_from_the_buffer_what_was_written(first: dict[str, np.ndarray]):
    """Each time anew, in the same memory."""
    buffer, layout = buffers.HostBuffer(), buffers.Layout.of(first)
    read = jax.jit(lambda seen: buffers.read_buffer(seen, LANES, layout))
    found = buffer.write(first)
    assert_same(read(found), jax.tree.map(jnp.asarray, first))
    other = jax.tree.map(lambda x: np.roll(x, 1, axis=0), first)
    assert buffer.write(other).unsafe_buffer_pointer() == found.unsafe_buffer_pointer()
    assert_same(read(found), jax.tree.map(jnp.asarray, other))


@pytest.mark.parametrize("overlap", [True, False])
def test_what_a_step_or_an_update_changes_is_written_over_what_was_there(
    overlap: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Else a GPU's graphs of kernels would be mended at every call. Copies in lower precision stay, too. And all is
    compiled once: when a run begins, in the midst of it, at a chunk's begin and after a restore it is called alike."""
    program = opened(overlap, monkeypatch)
    places: dict[Any, set[int]] = {}
    step = host_step.DeviceLanes.step

    def watched(lanes: host_step.DeviceLanes, shown: Observed, learn: bool) -> None:
        step(lanes, shown, learn)
        parts = {"state": lanes._state, "clock": [lanes._clock], "events": [lanes._events]} | lanes._brain
        if overlap:  # else they are made after each update, by a call of their own
            parts |= {f"copy of {name}": leaves for name, leaves in lanes._copies.items()}
        for name, leaves in parts.items():
            for i, leaf in enumerate(leaves):
                places.setdefault((name, i), set()).add(leaf.unsafe_buffer_pointer())

    with jax.log_compiles():
        program.begin()
        program.advance(2)
        monkeypatch.setattr(host_step.DeviceLanes, "step", watched)
        program.advance(6)
        monkeypatch.setattr(host_step.DeviceLanes, "step", step)
        program.restore(jax.device_get(program.state()), program.t, program.journal())
        program.advance(2)
    program.close()
    assert len(places) > 10
    assert any(name[0].startswith("copy") for name in places) == overlap
    assert {name for name, found in places.items() if len(found) > 1} == set()
    compiled = Counter(re.findall(r"Compiling (?:jit\()?(_step|_step_and_learn|update)\b", caplog.text))
    assert compiled == ({"_step": 1, "update": 3} if overlap else {"_step": 1, "_step_and_learn": 1})


def opened(overlap: bool, patch: pytest.MonkeyPatch) -> host.HostProgram:
    """A small program, some of whose arrays count as large."""
    patch.setattr(host_step, "LARGE_MATRIX", 64)
    patch.setattr(buffers, "SMALL_LEAF", 32)
    job = job_for("CartPole-v1", "ute", seeds=2, steps=64)
    tasks = [dataclasses.replace(task, plan=small_plan(task.plan)) for task in job.tasks]
    return host.HostProgram(tasks, [0, 1], job.open_envs, overlap)


def small_plan(plan: Any) -> Any:
    changed = {"learn_every": 4, "learning_starts": 0, "warmup": 0, "capacity": 256, "precision": "bfloat16"}
    return dataclasses.replace(plan, batch=4, extension_batch=4, **changed)


def updates_of(program: host.HostProgram) -> list[list[int]]:
    brain = program.state()[0].brain
    optimisers = (brain.extension_optimiser, *brain.action_optimisers)
    return [optax.tree_utils.tree_get(state, "count").tolist() for state in optimisers]


@pytest.mark.parametrize("step", range(12, 17))
def test_an_update_is_made_once_though_an_environment_fails_after_it_was_begun(
    step: int, monkeypatch: pytest.MonkeyPatch
):
    """Twice in a row, the second time at once; and in a program that was restored, too."""
    program = opened(True, monkeypatch)
    receive = program._envs.receive

    def failing() -> Observed:
        if program.t == step:
            raise LaneError(0, "no more poles")
        return receive()

    program.begin()
    program.advance(2)
    monkeypatch.setattr(program._envs, "receive", failing)
    for _ in range(2):
        with pytest.raises(EnvError, match=f"step {step}: no more poles"):
            program.advance(6)
        program.restore(jax.device_get(program.state()), program.t, program.journal())
    assert program.t == step
    monkeypatch.setattr(program._envs, "receive", receive)
    program.advance(9 - step // 4)
    program.close()
    due = [t for t in range(program.t) if t % 4 == 0 and t >= 4]
    assert program.t == 36
    assert updates_of(program) == [[len(due)] * 2] * 2


def test_a_run_may_be_stopped_at_any_time_and_is_the_same(monkeypatch: pytest.MonkeyPatch):
    """It goes on to the end of an update that was begun, so that all its parts come when they would have come."""
    learned = []
    for asked in (20, 9, 10, 11, 12):
        program = opened(True, monkeypatch)
        program.begin()
        program.advance(6, lambda program=program, asked=asked: program.t >= asked)
        assert asked <= program.t < asked + 3
        program.advance(6 - program.t // 4)
        assert program.t == 24
        learned.append(jax.device_get(program.networks()))
        program.close()
    for other in learned[1:]:
        assert_same(other, learned[0])

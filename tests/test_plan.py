"""Target networks, and the mean of the last networks."""

import jax.numpy as jnp
import numpy as np
import pytest

from tenuto.plan import Periodic, Plan, Polyak

# --- target networks -------------------------------------------------------------------------------------------


def copies(target: Periodic, every: int, last: int) -> list[int]:
    """The updates, `every` steps apart, at which the online network is copied."""
    online, old = {"w": jnp.ones(2)}, {"w": jnp.zeros(2)}
    return [t for t in range(every, last + 1, every) if target.track(online, old, jnp.int32(t), every)["w"].all()]


def test_periodic_target_is_copied_when_a_multiple_of_the_period_was_passed_since_the_last_update() -> None:
    assert copies(Periodic(10), every=1, last=35) == [10, 20, 30]
    assert copies(Periodic(10), every=4, last=40) == [12, 20, 32, 40]
    assert copies(Periodic(10), every=25, last=100) == [25, 50, 75, 100]


def test_periodic_target_stays_as_it_is_between_copies() -> None:
    old = {"w": jnp.array([3.0, 4.0])}
    kept = Periodic(10).track({"w": jnp.ones(2)}, old, jnp.int32(11), 1)
    assert kept["w"].tolist() == [3.0, 4.0]


def test_polyak_target_goes_its_share_of_the_way() -> None:
    online, target = {"w": jnp.array([8.0, 0.0])}, {"w": jnp.array([0.0, 4.0])}
    for t in (1, 2):
        target = Polyak(0.25).track(online, target, jnp.int32(t), 1)
    # 0 -> 2 -> 3.5 and 4 -> 3 -> 2.25
    assert target["w"].tolist() == [3.5, 2.25]


def test_networks_are_averaged_over_the_last_tenth_of_all_updates_or_the_last_thousand():
    """The weight that each update's networks have in the mean: in the end the newest 1,000 have 1 - 1/e of it, early on
    the newest tenth has 1 - (9/10)¹⁰ or so."""
    plan = Plan(average=0.001, warmup=100, learn_every=2)
    for updates, recent, least in ((40_000, 1_000, 0.63), (500, 50, 0.6), (20, 2, 0.5)):
        weights = np.zeros(updates)
        for i in range(updates):
            share = max(0.001, 10 / (10 + i))
            assert i % 997 or plan.averaged(jnp.int32(100 + 2 * i)) == pytest.approx(share)
            weights[:i] *= 1 - share
            weights[i] = share
        assert weights.sum() == pytest.approx(1)
        assert least < weights[-recent:].sum() < 0.75


# --- clocks near the end of 32 bits


@pytest.mark.parametrize("begun", [10**9, 2**31 - 2**20 - 100])
def test_clocks_of_billions_of_steps_keep_every_step_apart(begun: int):
    online, old = {"w": jnp.ones(2)}, {"w": jnp.zeros(2)}

    def moved(target: Periodic | Polyak, every: int) -> list[int]:
        times = range(begun + every - begun % every, begun + 100, every)
        return [t for t in times if target.track(online, old, jnp.int32(t), every)["w"].all()]

    assert moved(Periodic(10), 4) == [
        t for t in range(begun + 4 - begun % 4, begun + 100, 4) if t // 10 > (t - 4) // 10
    ]
    assert moved(Polyak(1.0, delay=3), 1) == [t for t in range(begun + 1, begun + 100) if (t - 1) % 3 == 0]
    plan = Plan(average=1e-10, anneal=True, steps=begun + 100)
    assert plan.averaged(jnp.int32(begun)) == pytest.approx(10 / (10 + begun))
    assert plan.pace(jnp.int32(begun // 2)) == pytest.approx(1 - (begun // 2) / (begun + 100))

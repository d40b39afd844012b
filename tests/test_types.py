"""The shapes and types that annotations promise, checked while small trainings run."""

import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest
from jaxtyping import Array, Float, TypeCheckError, jaxtyped

from helpers.compiler import hasty_environment
from helpers.type_checks import checked

TESTS = Path(__file__).parent


@jaxtyped(typechecker=checked)
def outer(a: Float[Array, " n"], b: Float[Array, " m"], turned: bool = False) -> Float[Array, "n m"]:
    return b[:, None] * a if turned else a[:, None] * b


def test_the_checker_sees_a_wrong_argument_and_a_wrong_result():
    a, b = jnp.ones(2), jnp.ones(3)
    assert outer(a, b).shape == (2, 3)
    for wrong in ((jnp.ones((2, 2)), b), (jnp.ones(2, int), b), (a, b, "yes"), (a, b, True)):
        with pytest.raises(TypeCheckError):
            outer(*wrong)


def test_every_annotation_holds_in_a_small_training_by_each_trainer():
    words = [sys.executable, "-m", "helpers.typed_trainings"]
    made = subprocess.run(words, cwd=TESTS, env=hasty_environment(), capture_output=True, text=True)
    assert made.returncode == 0, made.stderr

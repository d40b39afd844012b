"""A compiler in haste: nearly all of the tests' time is compiling."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
from jax._src import compiler

OPTION = "xla_cpu_use_fusion_emitters"
_in_haste = False
_options = getattr(compiler, "get_compile_options", None)  # no public part of JAX: without it, tests take longer


def _hasty_options(*args: Any, **options: Any) -> Any:
    """XLA's older emitters for the CPU: they take half the time, and round a little differently from one program to
    another."""
    assert _options is not None
    made = _options(*args, **options)
    if _in_haste:
        made.env_option_overrides = [*made.env_option_overrides, (OPTION, False)]
    return made


if _options is not None:
    compiler.get_compile_options = _hasty_options


@cache
def _has_older_emitters() -> bool:
    """Whether this version of XLA still has them."""
    try:
        jax.jit(lambda x: x, compiler_options={OPTION: False})(0.0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


@contextmanager
def in_haste(yes: bool) -> Iterator[None]:
    """Whether programs are compiled in haste, for as long as this lasts."""
    global _in_haste
    before, _in_haste = _in_haste, yes and _has_older_emitters()
    try:
        yield
    finally:
        _in_haste = before


def hasty_environment() -> dict[str, str]:
    """The environment of another process that compiles in haste."""
    flags = f"{os.environ['XLA_FLAGS']} --{OPTION}=false" if _has_older_emitters() else os.environ["XLA_FLAGS"]
    return {**os.environ, "XLA_FLAGS": flags}

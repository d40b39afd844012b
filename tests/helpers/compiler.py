"""A compiler in haste: nearly all of the tests' time is compiling."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import jax
from jax._src import compiler

# XLA's older emitters for the CPU take half the time, and round a little differently from one program to another. Code
# in one piece takes less work than in 32, which are for cores that have nothing else to do.
OPTIONS: dict[str, bool | int] = {"xla_cpu_use_fusion_emitters": False, "xla_cpu_parallel_codegen_split_count": 1}
_in_haste = False
_options = getattr(compiler, "get_compile_options", None)  # no public part of JAX: without it, tests take longer


def _hasty_options(*args: Any, **options: Any) -> Any:
    assert _options is not None
    made = _options(*args, **options)
    if _in_haste:
        made.env_option_overrides = [*made.env_option_overrides, *_known().items()]
    return made


if _options is not None:
    compiler.get_compile_options = _hasty_options


@cache
def _known() -> dict[str, bool | int]:
    """Those options that this version of XLA has."""
    return {name: value for name, value in OPTIONS.items() if _is_known(name, value)}


def _is_known(name: str, value: bool | int) -> bool:
    try:
        jax.jit(lambda x: x, compiler_options={name: value})(0.0)
    except jax.errors.JaxRuntimeError:
        return False
    return True


@contextmanager
def in_haste(yes: bool) -> Iterator[None]:
    """Whether programs are compiled in haste, for as long as this lasts."""
    global _in_haste
    _known()  # which compiles
    before, _in_haste = _in_haste, yes
    try:
        yield
    finally:
        _in_haste = before


def hasty_environment() -> dict[str, str]:
    """The environment of another process that compiles in haste."""
    flags = [f"--{name}={str(value).lower()}" for name, value in _known().items()]
    return {**os.environ, "XLA_FLAGS": " ".join([os.environ["XLA_FLAGS"], *flags])}

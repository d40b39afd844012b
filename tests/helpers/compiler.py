"""A compiler in haste: nearly all of the tests' time is compiling."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jax._src import compiler

_in_haste = True
_options = getattr(compiler, "get_compile_options", None)  # no public part of JAX: without it, tests take longer


def _hasty_options(*args: Any, **options: Any) -> Any:
    """XLA's older emitters for the CPU: they take half the time, and round a little differently from one program to
    another."""
    assert _options is not None
    made = _options(*args, **options)
    if _in_haste:
        made.env_option_overrides = [*made.env_option_overrides, ("xla_cpu_use_fusion_emitters", False)]
    return made


if _options is not None:
    compiler.get_compile_options = _hasty_options


@contextmanager
def in_haste(yes: bool) -> Iterator[None]:
    """Whether programs are compiled in haste, for as long as this lasts."""
    global _in_haste
    before, _in_haste = _in_haste, yes
    try:
        yield
    finally:
        _in_haste = before

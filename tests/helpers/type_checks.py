"""A checker of annotations for jaxtyping's import hook.

Those at hand do not serve: typeguard reads the words of a shape as Python code, and looks into named tuples, whose
annotations are for one sample, also where a caller has stacked many.
"""

import functools
import inspect
import types
from collections.abc import Callable
from typing import Annotated, Any, Literal, Union, get_args, get_origin


def checked(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which checks what it is given and what it gives against its annotations."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapper(*args: Any, **options: Any) -> Any:
        for name, value in signature.bind(*args, **options).arguments.items():
            parameter = signature.parameters[name]
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                insist(value, parameter.annotation, name)
        made = function(*args, **options)
        insist(made, signature.return_annotation, "what is returned")
        return made

    return wrapper


def insist(value: Any, annotation: Any, what: str) -> None:
    if not fits(value, annotation):
        shape = f" of shape {value.shape} and type {value.dtype}" if hasattr(value, "dtype") else ""
        raise TypeError(f"{what} is {type(value).__name__}{shape}, not {annotation}")


def fits(value: Any, annotation: Any) -> bool:
    """Whether the value is what the annotation says; of lists, dicts and functions only whether they are such."""
    origin, inside = get_origin(annotation), get_args(annotation)
    if annotation is None:
        return value is None
    if origin is Annotated:
        return fits(value, inside[0])
    if origin is Literal:
        return value in inside
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in inside)
    if origin is tuple and inside[1:] != (...,):
        return isinstance(value, tuple) and len(value) == len(inside) and all(map(fits, value, inside))
    kind = origin or annotation
    if not isinstance(kind, type) or kind in (Any, inspect.Signature.empty) or getattr(kind, "_is_protocol", False):
        return True  # a name, a type variable, or a protocol, which mypy checks
    if kind is float:
        return isinstance(value, float | int)
    return isinstance(value, kind)

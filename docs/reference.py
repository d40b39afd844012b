"""An extension of Griffe, which reads the sources for docs/reference.md and misses two things.

The signature of `tenuto.train` is known only at run time, because its arguments come from a dataclass. And a field is
explained by the comment on its line, not by a docstring.
"""

import importlib
import inspect
import re
from typing import Any

import griffe

AT_RUN_TIME = ("tenuto.api.train",)
COMMENT = re.compile(r"\s#\s(.*)$")


class Reference(griffe.Extension):
    """Signatures as `inspect` finds them, and comments of fields as their docstrings."""

    def on_function(self, *, func: griffe.Function, **kwargs: Any) -> None:
        if func.path not in AT_RUN_TIME:
            return
        module, _, name = func.path.rpartition(".")
        function = getattr(importlib.import_module(module), name)
        if func.docstring is not None:
            func.docstring.value = inspect.getdoc(function) or ""
        func.parameters = griffe.Parameters(*map(parameter, inspect.signature(function).parameters.values()))

    def on_attribute(self, *, attr: griffe.Attribute, **kwargs: Any) -> None:
        comment = COMMENT.search(attr.source) if attr.parent is not None and attr.parent.is_class else None
        if attr.docstring is None and comment:
            attr.docstring = griffe.Docstring(comment[1][:1].upper() + comment[1][1:], parent=attr)


def parameter(found: inspect.Parameter) -> griffe.Parameter:
    """A parameter in Griffe's words."""
    empty = inspect.Parameter.empty
    return griffe.Parameter(
        found.name,
        kind=griffe.ParameterKind[found.kind.name.lower()],
        annotation=None if found.annotation is empty else inspect.formatannotation(found.annotation),
        default=None if found.default is empty else repr(found.default),
    )

"""What Gymnasium's checker may warn of."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# What Gymnasium's checker says of every wrapper, of every environment without a spec, and of wide spaces.
WRAPPED, NO_SPEC = "is different from the unwrapped version", "environment not having a spec"
WIDE = ("minimum value is -infinity", "maximum value is infinity")


@contextmanager
def no_warning_but(*allowed: str) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text in allowed:
            warnings.filterwarnings("ignore", message=f"[\\s\\S]*{text}")
        yield

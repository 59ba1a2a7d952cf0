"""Names of test cases that are the same in every process: without the addresses of objects."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def steady(value: object) -> str:
    """How a value is shown, without its address."""
    return _ADDRESS.sub("", str(value))


def steady_repr(value: object) -> str:
    """The same of its `repr`."""
    return _ADDRESS.sub("", repr(value))

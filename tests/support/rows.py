"""A test of the rows of a table: one case that looks at every row and names each one that is wrong."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def rows(names: str, table: Iterable[Any], tell: Callable[..., str] | None = None) -> Callable[[Any], Any]:
    """As `pytest.mark.parametrize`, with one case for all rows; `tell` says what a row is called.

    Fixtures are those of the one case: a test that leaves something in them is none for this.
    """
    wanted, listed = [name.strip() for name in names.split(",")], list(table)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def looks_at_all(**fixtures: Any) -> None:
            wrong: list[str] = []
            for row in listed:
                values = dict(zip(wanted, row if len(wanted) > 1 else [row], strict=True))
                try:
                    test(**values, **fixtures)
                except (Exception, pytest.fail.Exception) as fault:
                    called = tell(*values.values()) if tell else ", ".join(map(str, values.values()))
                    wrong.append(f"{called}: {type(fault).__name__}: {fault}")
            assert listed, "the table has no rows"
            if wrong:
                pytest.fail(
                    "\n".join([f"{len(wrong)} of {len(listed)} rows are wrong", *wrong]), pytrace=False
                )

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in wanted]
        looks_at_all.__signature__ = signature.replace(parameters=left)  # pyright: ignore[reportAttributeAccessIssue]
        return looks_at_all

    return decorate

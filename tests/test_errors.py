"""Which of several exceptions is spoken of."""

from __future__ import annotations

import pytest

from mcp_toolset import ToolsetError
from mcp_toolset.errors import CallError, StateError, innermost, sole

OURS, OTHER, THIRD = CallError("ours"), KeyError("other"), OSError("third")


@pytest.mark.parametrize(
    ("fault", "first", "spoken_of"),
    [
        (OTHER, (ToolsetError,), OTHER),
        (ExceptionGroup("", [OTHER, OURS]), (), OTHER),
        (ExceptionGroup("", [OTHER, OURS]), (ToolsetError,), OURS),
        (ExceptionGroup("", [ExceptionGroup("", [OTHER, THIRD]), OURS]), (ToolsetError,), OURS),
        (ExceptionGroup("", [ExceptionGroup("", [OTHER, OURS]), THIRD]), (ToolsetError,), OURS),
        (ExceptionGroup("", [OTHER, THIRD]), (ToolsetError,), OTHER),
        (ExceptionGroup("", [OTHER, OURS]), (StateError,), OTHER),
    ],
)
def test_innermost_prefers_the_kinds_that_it_is_told_and_takes_the_first_otherwise(
    fault: BaseException, first: tuple[type[BaseException], ...], spoken_of: BaseException
) -> None:
    assert innermost(fault, *first) is spoken_of


def test_sole_opens_groups_of_one_and_no_others() -> None:
    several = ExceptionGroup("", [OTHER, OURS])
    assert sole(ExceptionGroup("", [ExceptionGroup("", [OURS])])) is OURS
    assert sole(ExceptionGroup("", [several])) is several
    assert sole(OTHER) is OTHER

"""Shapes that operators with a matrix between two factors are tested on, each with its reason."""

import pytest

BOTH = ("shared", "shared")
TWO_SIDED = [
    # batch, m, n, kinds of the left and right factor
    pytest.param((), 1, 1, BOTH, id="one number"),
    pytest.param((), 2, 3, BOTH, id="the smallest rectangle"),
    pytest.param((), 63, 65, BOTH, id="one below and above 64"),
    pytest.param((), 64, 64, BOTH, id="a power of two"),
    pytest.param((), 257, 257, BOTH, id="prime, several tiles"),
    pytest.param((), 1, 257, BOTH, id="a row"),
    pytest.param((), 257, 1, BOTH, id="a column"),
    pytest.param((), 65, 33, ("shared", "none"), id="left only"),
    pytest.param((), 33, 65, ("none", "shared"), id="right only"),
    pytest.param((), 65, 33, ("none", "none"), id="no factor"),
    pytest.param((3,), 33, 17, BOTH, id="batch, shared factors"),
    pytest.param((3,), 33, 17, ("each", "each"), id="batch, a factor for each"),
    pytest.param((2, 3), 5, 7, ("each", "shared"), id="two batch dimensions"),
    pytest.param((0,), 5, 7, ("each", "shared"), id="empty batch"),
    pytest.param((), 0, 7, BOTH, id="no rows"),
    pytest.param((), 7, 0, BOTH, id="no columns"),
]

SMALL_TWO_SIDED = (
    # The same where every element is interpreted.
    ((), 1, 1, BOTH),
    ((), 1, 37, BOTH),
    ((), 37, 1, BOTH),
    ((), 3, 5, BOTH),
    ((), 63, 65, BOTH),
    ((), 33, 17, ("shared", "none")),
    ((), 17, 33, ("none", "shared")),
    ((3,), 17, 33, ("each", "shared")),
    ((0,), 5, 7, BOTH),
    ((), 0, 7, BOTH),
)

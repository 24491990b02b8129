"""Shapes that operators with a matrix between two factors are tested on, each with its reason."""

import pytest

TWO_SIDED = [
    # batch, m, n, kinds of the left and right factor
    pytest.param((), 1, 1, ("shared", "shared"), id="one number"),
    pytest.param((), 2, 3, ("shared", "shared"), id="the smallest rectangle"),
    pytest.param((), 63, 65, ("shared", "shared"), id="one below and above 64"),
    pytest.param((), 64, 64, ("shared", "shared"), id="a power of two"),
    pytest.param((), 257, 257, ("shared", "shared"), id="prime, several tiles"),
    pytest.param((), 1, 257, ("shared", "shared"), id="a row"),
    pytest.param((), 257, 1, ("shared", "shared"), id="a column"),
    pytest.param((), 65, 33, ("shared", "none"), id="left only"),
    pytest.param((), 33, 65, ("none", "shared"), id="right only"),
    pytest.param((), 65, 33, ("none", "none"), id="no factor"),
    pytest.param((3,), 33, 17, ("shared", "shared"), id="batch, shared factors"),
    pytest.param((3,), 33, 17, ("each", "each"), id="batch, a factor for each"),
    pytest.param((2, 3), 5, 7, ("each", "shared"), id="two batch dimensions"),
    pytest.param((0,), 5, 7, ("each", "shared"), id="empty batch"),
    pytest.param((), 0, 7, ("shared", "shared"), id="no rows"),
    pytest.param((), 7, 0, ("shared", "shared"), id="no columns"),
]

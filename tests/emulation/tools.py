"""What a test does when a compiler or an emulator it needs is not installed."""

import pytest


def require_tool(config: pytest.Config, name: str, found: bool) -> None:
    """Skip the test when a tool is missing, or fail it under ``--strict-tools``."""
    if found:
        return
    reason = f"{name} is not installed"
    if config.getoption("--strict-tools"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)

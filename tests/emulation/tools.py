"""What a test does when a tool it needs is not installed."""

import pytest


class ToolMissing(RuntimeError):
    """A compiler or reader that a test needs is not installed."""


def require_tool(request_or_config: pytest.FixtureRequest | pytest.Config, name: str, found: bool) -> None:
    """Skip the running test if a tool is missing, or fail it under ``--strict-tools``.

    Args:
        request_or_config: The fixture request or the config of the run.
        name: The tool, as the summary of skipped tests should show it.
        found: Whether it is there.
    """
    if found:
        return
    config = request_or_config if isinstance(request_or_config, pytest.Config) else request_or_config.config
    if config.getoption("--strict-tools"):
        pytest.fail(f"{name} is not installed, and --strict-tools requires it", pytrace=False)
    pytest.skip(f"{name} is not installed")

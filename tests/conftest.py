"""Options and fixtures that all tests share."""


def pytest_addoption(parser):
    parser.addoption(
        "--strict-tools", action="store_true", help="a missing compiler or emulator is a failure, not a skip"
    )

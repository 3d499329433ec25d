"""What the fault tests need of pytest: when they are collected, how long they run, where they keep their progress.

They take minutes and own whole machines, so an ordinary run leaves them out: their files are ignored unless FAULTS is set
(``FAULTS=1`` CI sizes, ``FAULTS=long`` the long ones; `run.py` sets it). An environment variable is used, because an option
that is registered here exists only when pytest is pointed at this folder. The checker's and the proxy's own tests are quick
and always run.
"""

import os
from collections.abc import Generator

import pytest

from tests.faults.fleet import Launcher
from tests.faults.sizes import is_on

collect_ignore_glob = [] if is_on() else ["test_row_*.py", "test_planted.py", "test_scenarios.py"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--faults-long`` says the same as FAULTS=long where this folder is named on the command line."""
    parser.addoption("--faults-long", action="store_true", help="the long sizes of the fault tests (needs FAULTS set)")


def pytest_configure(config: pytest.Config) -> None:
    """The marker, and the long sizes by option."""
    config.addinivalue_line("markers", "faults: kills, cuts and freezes real processes; minutes, not seconds")
    if config.getoption("--faults-long", default=False):
        os.environ["FAULTS"] = "long"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in these files is a fault test."""
    for item in items:
        if item.path.name.startswith(("test_row_", "test_planted", "test_scenarios")):
            item.add_marker(pytest.mark.faults)


@pytest.fixture(scope="session")
def launcher() -> Generator[Launcher]:
    """One launcher for all scenarios: importing the gateway takes longer than most of them wait."""
    launcher = Launcher()
    yield launcher
    launcher.close()

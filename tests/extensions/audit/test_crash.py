"""A killed process leaves a log that can be verified, and the next run continues it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mcp_toolset.audit import AuditLog
from mcp_toolset.extensions.audit.extension import seal_of
from mcp_toolset.extensions.audit.log_files import files_of
from mcp_toolset.extensions.audit.verification import verify

KEY = "a key that nobody guesses"
WRITER = """
import sys
import threading
from mcp_toolset.extensions.audit import extension

extension._GATHER = 0.001
path, size, key = sys.argv[1:]
log = extension.AuditLog(path, max_bytes=int(size), max_files=500, key=key or None, fsync=None)
log.open()
pause = threading.Event()
while True:
    for _ in range(20):
        log.record("call", tool="pay")
    while log._queue:
        pause.wait(0.0005)
    print(log._files.chain.seq, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_i9_a_killed_writer_leaves_a_log_that_verifies_and_goes_on(tmp_path: Path, seed: int):
    chance = random.Random(seed)
    path, key = tmp_path / "audit.jsonl", KEY if seed % 2 else None
    size = chance.choice([3_000, 20_000])
    lines = 0
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(path), str(size), key or ""]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(chance.randint(1, 40)):
                assert writer.stdout.readline()
            os.kill(writer.pid, signal.SIGKILL)
        verified = verify([path], seal_of(key))[0]
        assert verified.finding is None, verified
        assert verified.lines >= lines
        lines = verified.lines
    with AuditLog(path, max_bytes=size, max_files=500, key=key).opened() as log:
        log.record("call", tool="last")
    verified = verify([path], seal_of(key))[0]
    assert verified.finding is None and verified.note == "" and verified.lines > lines
    every = [json.loads(line) for file in files_of(path) for line in file.read_bytes().splitlines()]
    assert [line["event"] for line in every].count("started") == 4
    assert [line["unclean"] for line in every if line["event"] == "resumed"] == [True] * 3

"""A killed process leaves a log that can be verified, and the next run continues it."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
from pathlib import Path

import pytest
from tests.support.audit_logs import checked, files_of
from tests.support.warm import Warm

from mcp_toolset.audit import AuditLog

KEY = "a key that nobody guesses"
WRITER = """
import os
import sys
import threading
from mcp_toolset.extensions.audit import extension

extension._GATHER = 0.001
path, size, key = sys.argv[1:]
log = extension.AuditLog(path, max_bytes=int(size), max_files=500, key=key or None, fsync=None)
log.open()
print(os.getpid(), flush=True)
pause = threading.Event()
while True:
    for _ in range(20):
        log.record("call", tool="pay")
    while log._queue:
        pause.wait(0.0005)
    print(log._files.chain.seq, flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_i9_a_killed_writer_leaves_a_log_that_verifies_and_goes_on(tmp_path: Path, seed: int, warm: Warm):
    chance = random.Random(seed)
    path, key = tmp_path / "audit.jsonl", KEY if seed % 2 else None
    size = chance.choice([3_000, 20_000])
    lines = 0
    for _ in range(3):
        command = warm.command("-c", WRITER, str(path), str(size), key or "")
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            pid = int(writer.stdout.readline())
            for _ in range(chance.randint(1, 40)):
                assert writer.stdout.readline()
            os.kill(pid, signal.SIGKILL)
        said = checked(path, key)
        assert said["finding"] is None, said
        assert said["lines"] >= lines
        lines = said["lines"]
    with AuditLog(path, max_bytes=size, max_files=500, key=key).opened() as log:
        log.record("call", tool="last")
    said = checked(path, key)
    assert said["finding"] is None and said["note"] == "" and said["lines"] > lines
    every = [json.loads(line) for file in files_of(path) for line in file.read_bytes().splitlines()]
    assert [line["event"] for line in every].count("started") == 4
    assert [line["unclean"] for line in every if line["event"] == "resumed"] == [True] * 3

"""Starts scripts at once: `python -S launch.py SOCKET SCRIPT ARGUMENT...`, or `-m MODULE` for a script.

It hands its descriptors to `warm.py`, which runs the script in a fork of itself, and ends as the fork does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from typing import Any


def main() -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(sys.argv[1])
        asked = {"argv": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd()}
        socket.send_fds(asking, [json.dumps(asked).encode()], [0, 1, 2])
        fork = int(asking.recv(100))

        def hand_on(number: int, frame: Any) -> None:
            os.kill(fork, number)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, hand_on)
        # The fork is the one that reads and writes these from now on.
        for descriptor in (0, 1):
            os.close(descriptor)
        return int(asking.recv(100) or b"1")


if __name__ == "__main__":
    os._exit(main())

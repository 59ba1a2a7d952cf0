"""A server on standard input and output that starts at once: `python -S relay.py PORT ERA`.

What it reads goes, line by line, to a process that runs already, and serves each connection as a process of
its own would: see `asker.py`. The SDK takes a second to import.
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def hand_on(source: int, wire: socket.socket) -> None:
    while data := os.read(source, 1 << 16):
        wire.sendall(data)
    wire.shutdown(socket.SHUT_WR)


def take(wire: socket.socket, sink: int) -> None:
    try:
        while data := wire.recv(1 << 16):
            view = memoryview(data)
            while view:
                view = view[os.write(sink, view) :]
    except OSError:
        pass
    # Standard input may be waited for.
    os._exit(0)


def main() -> None:
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as wire:
        wire.sendall(f"{sys.argv[2]}\n".encode())
        taking = threading.Thread(target=take, args=(wire, 1))
        taking.start()
        hand_on(0, wire)
        taking.join()


if __name__ == "__main__":
    main()

"""Run the server from a checkout: `python servers/everything/everything.py --transport http`."""

from __future__ import annotations

import sys

from everything_server.server import main

if __name__ == "__main__":
    sys.exit(main())

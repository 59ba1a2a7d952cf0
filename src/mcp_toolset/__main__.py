"""`python -m mcp_toolset`: the same command line as `mcp-toolset`."""

from __future__ import annotations

import sys

from mcp_toolset.cli.main import main

if __name__ == "__main__":
    sys.exit(main())

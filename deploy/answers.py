"""Exit with 0 if a URL answers with 200.

The health check of the container. It needs the standard library alone, and loads no package.
"""

import sys
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit


def answers(url: str, seconds: float = 4.0) -> bool:
    """True if the server at `url` answers."""
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "127.0.0.1", parts.port or 80, timeout=seconds)
    try:
        connection.request("GET", parts.path or "/", headers={"Host": "localhost"})
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(not answers(sys.argv[1]))

"""A server on stdio whose tools run as tasks."""

from __future__ import annotations

from tests.extensions.tasks.jobs import Jobs

from mcp_toolset import serve


def main() -> None:
    jobs = Jobs()
    serve(jobs.server())


if __name__ == "__main__":
    main()

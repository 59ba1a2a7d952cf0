"""A program that serves under a main guard: what it serves is found, hooks and all."""

from tests.cli.commandline import CommandLine, line

__all__ = ["line"]


GUARDED = """
import sys
from mcp_toolset import HookSet, Reject, serve, tool

@tool
def wipe(path: str) -> str:
    '''Wipe a path.'''
    return f"wiped {path}"

hooks = HookSet()

@hooks.execution("wipe")
async def never(call, input: dict) -> Reject:
    return Reject("never")

def main():
    serve(wipe, hooks=hooks)

if __name__ == "__main__":
    sys.exit(main())
"""


def test_x8_hooks_of_a_server_made_under_a_main_guard_are_not_lost(line: CommandLine) -> None:
    (line.folder / "guarded.py").write_text(GUARDED)
    done = line.run("call", "guarded.py", "wipe", "path=/x")
    assert done.returncode == 1
    assert "Rejected: never" in done.stderr and "wiped" not in done.stdout


def test_a_main_block_that_serves_nothing_by_itself_is_said_with_the_mend(line: CommandLine) -> None:
    line.write(
        "picky.py",
        GUARDED.replace("    serve(wipe, hooks=hooks)", "    if sys.argv[1:]: serve(wipe)\n    return 3"),
    )
    done = line.run("list", "picky.py")
    assert (done.returncode, done.stdout) == (1, "")
    assert "picky.py: its __main__ block ends with exit code 3; name what to serve" in done.stderr
    assert done.stderr.count("\n") == 1

"""`mcp-toolset call`: arguments as they are typed, results, errors, and ways to end early."""

import signal
import sys

import pytest
from tests.cli.commandline import PATIENCE, CommandLine, answer, line

__all__ = ["line"]

ENV = """
import os
from mcp_toolset import serve

def key() -> str:
    return os.environ["A_KEY"]

serve(key)
"""


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("echo", "text=5"), "5"),
        (("echo", '{"text": "a=b"}'), "a=b"),
        (("echo", "text=a=b"), "a=b"),
        (("sort_names", "names=b", "names=a", "reverse=true"), '["b","a"]'),
        (("sort_names", 'names=["b","a"]'), '["a","b"]'),
        (("echo", "-"), "from stdin"),
    ],
)
def test_arguments_are_read_by_the_schema_of_the_tool(line: CommandLine, words: tuple[str, ...], text: str):
    done = line.run("call", "kit.py", *words, stdin='{"text": "from stdin"}')
    assert (done.returncode, done.stdout) == (0, text + "\n"), done.stderr


def test_an_error_result_is_exit_code_1_and_json_all_the_same(line: CommandLine):
    done = line.run("call", "kit.py", "boom")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "mcp-toolset: boom failed: the pump is dry\n"
    result = answer(line, "call", "kit.py", "boom", code=1)
    assert result["isError"] is True


def test_an_interrupt_ends_a_call_after_its_progress_was_shown(line: CommandLine):
    process = line.start("call", "kit.py", "wait")
    assert process.stderr is not None
    assert process.stderr.readline() == "[1/2] half way\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out, err.strip()) == (130, "", "")


def test_a_timeout_does_not_wait_for_a_thread_that_is_busy(line: CommandLine):
    # `process` waits for a minute at most.
    done = line.process("call", "kit.py", "block", "seconds=600", "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "mcp-toolset: block: no result within 0.5 s; allow more with --timeout\n"


def test_a_command_gets_the_environment_of_whoever_names_it(line: CommandLine):
    line.write("env.py", ENV)
    target = ("--", sys.executable, "env.py")
    done = line.run("call", "key", *target, env={"A_KEY": "from here"})
    assert done.stdout == "from here\n", done.stderr


def test_verbose_logs_to_stderr_and_leaves_the_answer_alone(line: CommandLine):
    done = line.run("call", "-vv", "kit.py", "echo", "text=hello")
    assert done.stdout == "hello\n"
    assert "debug: " in done.stderr


ESCAPES = r"""
from mcp_toolset import serve

def red() -> str:
    return "\x1b[31mred\x1b[0m \x1b]0;a title\x07done"

serve(red)
"""


def test_u83_escapes_of_a_tool_reach_no_terminal_through_a_pipe(line: CommandLine):
    (line.folder / "escapes.py").write_text(ESCAPES)
    piped = line.process("call", "escapes.py", "red")
    assert "red" in piped.stdout and "\x1b" not in piped.stdout and "\x07" not in piped.stdout
    # A file has the text as the tool gave it.
    assert line.run("call", "escapes.py", "red").stdout == "\x1b[31mred\x1b[0m \x1b]0;a title\x07done\n"


NAN = """
from mcp_toolset import Toolset, ToolResult, serve, tool

@tool
def odd() -> ToolResult:
    numbers = {"a": float("nan"), "b": [float("inf"), 1.5]}
    return ToolResult({"content": [], "structuredContent": numbers, "isError": False})

serve(Toolset(odd))
"""


# As over the protocol.
def test_a_number_that_json_does_not_have_is_null(line: CommandLine):
    line.write("odd.py", NAN)
    result = answer(line, "call", "odd.py", "odd")
    assert result["structuredContent"] == {"a": None, "b": [None, 1.5]}

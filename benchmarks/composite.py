"""A composite of 77 tools of eight servers, as one hub has them: what the benchmarks of the surface run on.

The tools are described here, one on a line, in the manner of common servers; a call of one says what it was
called with.
"""

# One tool is one line.
# ruff: noqa: E501

from __future__ import annotations

import json
import re
from typing import Any

from mcp_toolset import (
    DynamicToolset,
    ToolCall,
    ToolContext,
    ToolDefinition,
    ToolProvider,
    ToolResult,
    Toolset,
)

SERVERS = {
    "time": """
convert_time(time: string, source_timezone: string, timezone: string)! Convert a time of day from one IANA time zone to another.
get_current_time(timezone: string)! Get the current time in a time zone, with its offset and whether daylight saving applies.
""",
    "files": """
read_text_file(path: string, head?: integer, tail?: integer)! Read a text file, whole or only its first or last lines.
read_media_file(path: string)! Read an image or an audio file, as base64 with its media type.
read_multiple_files(paths: string[])! Read several files at once; a file that cannot be read does not stop the others.
write_file(path: string, content: string) Create a file, or overwrite it with new content.
edit_file(path: string, edits: object[], dry_run?: boolean) Replace exact lines of a text file, and show the difference.
create_directory(path: string) Create a folder, and the folders above it that are missing.
list_directory(path: string)! List what a folder holds, files and folders told apart.
directory_tree(path: string, exclude?: string[])! Show a folder and everything in it as a tree.
move_file(source: string, destination: string) Move or rename a file or a folder.
search_files(path: string, pattern: string, exclude?: string[])! Find files and folders whose names match a pattern.
get_file_info(path: string)! Get the size, the times and the permissions of a file or a folder.
list_allowed_directories()! List the folders that this server may read and write.
""",
    "git": """
status(repo_path: string)! Show the state of the working tree of a repository.
diff_unstaged(repo_path: string, context_lines?: integer)! Show changes that are not staged yet.
diff_staged(repo_path: string, context_lines?: integer)! Show changes that are staged for the next commit.
diff(repo_path: string, target: string, context_lines?: integer)! Show the differences to a branch or a commit.
commit(repo_path: string, message: string) Record the staged changes in the repository.
add(repo_path: string, files: string[]) Stage the content of files for the next commit.
reset(repo_path: string) Unstage everything that is staged.
log(repo_path: string, max_count?: integer, author?: string)! Show the history of commits, the newest first.
create_branch(repo_path: string, branch_name: string, base_branch?: string) Create a branch from a base.
checkout(repo_path: string, branch_name: string) Switch the working tree to another branch.
show(repo_path: string, revision: string)! Show what a commit changed.
branch(repo_path: string, branch_type: string, contains?: string)! List local or remote branches.
""",
    "memory": """
create_entities(entities: object[]) Create entities in the knowledge graph, each with a name, a type and observations.
create_relations(relations: object[]) Create relations between entities of the knowledge graph.
add_observations(observations: object[]) Add observations to entities that exist.
delete_entities(entity_names: string[]) Delete entities with their relations.
delete_observations(deletions: object[]) Delete observations of entities.
delete_relations(relations: object[]) Delete relations between entities.
read_graph()! Read the whole knowledge graph.
search_nodes(query: string)! Search the knowledge graph by names, types and observations.
open_nodes(names: string[])! Read some entities of the knowledge graph by their names.
""",
    "web": """
fetch(url: string, max_length?: integer, start_index?: integer, raw?: boolean)! Fetch a page of the web as Markdown.
search_web(query: string, count?: integer, freshness?: string)! Search the web, and get titles, addresses and summaries.
search_news(query: string, count?: integer)! Search the news of the last days.
search_images(query: string, count?: integer)! Search images on the web.
""",
    "browser": """
navigate(url: string) Open an address in the browser.
navigate_back() Go back to the page before.
click(element: string, ref: string, double?: boolean) Click on an element of the page.
hover(element: string, ref: string) Move the pointer over an element of the page.
drag(start_ref: string, end_ref: string) Drag one element of the page to another.
type_text(element: string, ref: string, text: string, submit?: boolean) Type text into a field of the page.
press_key(key: string) Press a key of the keyboard.
select_option(element: string, ref: string, values: string[]) Choose options in a list of the page.
fill_form(fields: object[]) Fill in several fields of a form.
upload_files(paths: string[]) Upload files into the page.
take_screenshot(filename?: string, full_page?: boolean, element?: string)! Take a picture of the page or of an element.
snapshot()! Get the page as a tree of what a screen reader tells; better than a picture for acting.
console_messages(only_errors?: boolean)! Get the messages of the page's console.
network_requests()! List the requests that the page has made since it was loaded.
evaluate(function: string, element?: string) Run JavaScript in the page.
handle_dialog(accept: boolean, prompt_text?: string) Accept or dismiss a dialog of the page.
resize(width: integer, height: integer) Change the size of the browser's window.
tabs(action: string, index?: integer) List, open, select or close tabs.
wait_for(text?: string, seconds?: number) Wait until a text appears, or for some seconds.
close() Close the page.
""",
    "tickets": """
create_issue(owner: string, repo: string, title: string, body?: string, labels?: string[]) Open an issue in a repository.
get_issue(owner: string, repo: string, number: integer)! Get an issue with its comments.
list_issues(owner: string, repo: string, state?: string, labels?: string[], page?: integer)! List the issues of a repository.
update_issue(owner: string, repo: string, number: integer, title?: string, state?: string) Change an issue, or close it.
add_comment(owner: string, repo: string, number: integer, body: string) Comment on an issue or on a pull request.
create_pull_request(owner: string, repo: string, title: string, head: string, base: string) Open a pull request.
merge_pull_request(owner: string, repo: string, number: integer, method?: string) Merge a pull request.
search_issues(query: string, sort?: string, page?: integer)! Search issues and pull requests of all repositories.
create_user(name: string, email: string, role?: string) Invite a person to the tracker.
""",
    "database": """
list_tables(schema?: string)! List the tables of the database.
describe_table(table: string)! Show the columns, the types and the keys of a table.
run_query(sql: string, parameters?: object, limit?: integer)! Run a query that reads, and get rows.
execute(sql: string, parameters?: object) Run a statement that changes data.
explain(sql: string)! Show how a query would be run.
export_table(table?: string, format?: string, input?: object) Export a table, or what an input describes, into a file.
list_connections()! List the connections that are open.
create_index(table: string, columns: string[], unique?: boolean) Create an index on columns of a table.
vacuum(table?: string) Reclaim the space of rows that were deleted.
""",
}
_LINE = re.compile(r"(?P<name>\w+)\((?P<parameters>[^)]*)\)(?P<reads>!?) (?P<text>.+)")
_TYPES: dict[str, dict[str, Any]] = {
    "string[]": {"type": "array", "items": {"type": "string"}},
    "object[]": {"type": "array", "items": {"type": "object"}},
}


def definitions(server: str) -> list[ToolDefinition]:
    """The tools of one server."""
    return [_definition(line) for line in SERVERS[server].strip().splitlines()]


def _definition(line: str) -> ToolDefinition:
    found = _LINE.fullmatch(line)
    assert found is not None, line
    pairs = [part.split(": ") for part in found["parameters"].split(", ") if part]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            name.rstrip("?"): {"title": name.rstrip("?").replace("_", " ").title(), **_type(kind)}
            for name, kind in pairs
        },
        "required": [name for name, _ in pairs if not name.endswith("?")],
    }
    return ToolDefinition(
        found["name"], found["text"], schema, annotations={"readOnlyHint": bool(found["reads"])}
    )


def _type(kind: str) -> dict[str, Any]:
    return _TYPES.get(kind, {"type": kind})


class Recording(ToolProvider):
    """A server whose tools note what they were called with, and answer it."""

    def __init__(self, server: str, ran: list[tuple[str, dict[str, Any]]]) -> None:
        self._server = server
        self._ran = ran

    async def list_definitions(self) -> list[ToolDefinition]:
        return definitions(self._server)

    async def execute(self, call: ToolCall, context: ToolContext) -> ToolResult:
        name = f"{self._server}_{call.name}"
        self._ran.append((name, dict(call.arguments)))
        return ToolResult.of_text(json.dumps({"ran": name, "with": call.arguments}))


def composite(ran: list[tuple[str, dict[str, Any]]] | None = None) -> Toolset:
    """All 77 tools as mounted servers; `ran` gets the name and the arguments of each call."""
    seen = [] if ran is None else ran
    return Toolset(*(DynamicToolset(Recording(name, seen), name=name).prefixed(name) for name in SERVERS))

from mcp_toolset import PinPolicy, RemoteToolset, serve
from mcp_toolset.middleware import HiddenTextFilter

notes = RemoteToolset(
    ["mcp-server-notes"],
    name="notes",
    pins=PinPolicy(changed="quarantine", new="warn", hidden_text="refuse"),
    lock="notes.lock.json",
)

if __name__ == "__main__":
    serve(notes, middleware=[HiddenTextFilter()])

from mcp_toolset import Toolset, tool


@tool(name="files.read")
def read(path: str, lines: int = 100) -> str:
    """Read a file."""
    return path


view = Toolset(read).view()
for provider in ("openai", "openai_responses", "anthropic", "gemini"):
    export = view.export(provider)
    (name,) = export.names
    print(provider, name, export.names[name])
strict = view.export("openai", strict=True)
sent = strict.tools[0]["function"]
print(sent["strict"], sent["parameters"]["required"], sent["parameters"]["properties"]["lines"]["type"])

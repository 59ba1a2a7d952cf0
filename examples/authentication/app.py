"""A server on HTTP that knows its callers: programs with tokens of ours, people with tokens of an issuer."""

import os

from mcp_toolset import ToolContext, Toolset, ToolsetServer, serve, tool
from mcp_toolset.auth import JWT, Authenticator, StaticTokens


@tool(read_only=True)
def whoami(context: ToolContext) -> str:
    """Say who is calling."""
    caller = context.identity
    return "nobody" if caller is None else f"{caller.name} ({', '.join(sorted(caller.roles)) or 'no roles'})"


programs = StaticTokens.from_env("ci=CI_TOKEN", roles=["robot"])
people = JWT(
    issuer=os.environ.get("ISSUER", "https://idp.example.com"), audience="https://tools.example.com/mcp"
)
server = ToolsetServer(Toolset(whoami), auth=Authenticator([programs, people]))

if __name__ == "__main__":
    serve(server, transport="http")

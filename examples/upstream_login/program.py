from mcp_toolset import RemoteToolset, Toolset, serve
from mcp_toolset.auth import ClientCredentials, OAuth


def toolset(robot_secret: str) -> Toolset:
    robot = ClientCredentials(
        issuer="https://idp.example.com", client_id="nightly", client_secret=robot_secret
    )
    return Toolset(
        RemoteToolset("https://wiki.example.com/mcp", name="wiki", auth=OAuth(scopes=["read"])),
        RemoteToolset("https://jobs.example.com/mcp", name="robot", auth=robot),
    )


if __name__ == "__main__":
    import os

    serve(toolset(os.environ["ROBOT_SECRET"]))

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from mcp_toolset import ToolsetError, ToolsetServer, load_toolset

APP = Path(__file__).parents[1] / "local_tool" / "app.py"
MATHS = {"command": sys.executable, "args": ["-m", "mcp_toolset", "serve", str(APP)]}


def write(file: Path, **servers: object) -> None:
    file.write_text(json.dumps({"mcpServers": servers}))


async def main() -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "mcp.json"
        write(file, maths=MATHS)
        async with ToolsetServer(load_toolset(file)) as server:
            await server.settled()
            print(*(shown["name"] for shown in server.tools()))

            write(file, maths=MATHS | {"prefix": "m"}, more=MATHS)
            print(await server.reload(timeout=60))
            print(*(shown["name"] for shown in server.tools()))

            file.write_text('{"mcpServers": {')
            try:
                await server.reload()
            except ToolsetError as fault:
                print(str(fault).removeprefix(str(file)))
            print(*(shown["name"] for shown in server.tools()))


if __name__ == "__main__":
    anyio.run(main)

from shop import shop

from mcp_toolset import RemoteToolset, Toolset, serve

time = RemoteToolset(["mcp-server-time"], name="time")

office = Toolset(shop, time.prefixed("clock"))

if __name__ == "__main__":
    serve(office)

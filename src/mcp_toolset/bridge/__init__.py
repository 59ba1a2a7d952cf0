"""The only room on the wire: upstream connections, the server and its transports."""

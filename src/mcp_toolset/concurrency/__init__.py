"""What anyio lacks: worker threads, thread events, deadlines, drains, signals, files replaced in one step."""

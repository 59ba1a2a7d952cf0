"""What anyio lacks: worker threads, thread events, deadlines, drains, signals, files replaced in one step.

Every room above uses it. It may import `errors`, and knows neither tools nor messages.
"""

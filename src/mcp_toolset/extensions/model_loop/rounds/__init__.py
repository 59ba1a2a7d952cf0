"""Rounds: the tool calls of one model reply, validated, run in parallel and answered."""

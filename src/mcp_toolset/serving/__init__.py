"""Run a server: `serve`, its log, and the messages for the person who started it.

The command line and programs call it. It may import every other room except `cli`.
"""

"""From a toolset to a running server: `serve`, and what it prints for the person who started it.

The command line and programs call it. It may import every other room except `cli`.
"""

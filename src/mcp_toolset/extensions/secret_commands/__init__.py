"""Secrets of commands: `${command:op read …}` is what a program writes; see docs/secrets.md."""

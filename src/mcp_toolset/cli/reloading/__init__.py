"""`serve FILE.py --reload`: a child process runs the program, and is exchanged when a file of it changes."""

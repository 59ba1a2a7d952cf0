"""A model of the program, for tools that ask for one in calls of clients that lend none."""

"""Tools grouped, nested and transformed: `Toolset`, its verbs and its turns."""

"""Tools grouped, nested and transformed: `Toolset`, its verbs, providers and turns.

Applications, `hub`, `server` and `upstream` use it. It may import every other folder of `tools`, and
`errors`.
"""

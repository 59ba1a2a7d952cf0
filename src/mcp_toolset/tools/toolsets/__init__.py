"""Tools grouped, nested and transformed: `Toolset`, its verbs, providers and turns.

Applications, `hub`, `server` and `upstream` call it. It may import every other shelf of `tools`, and
`errors`.
"""

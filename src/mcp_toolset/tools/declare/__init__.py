"""How a tool is declared: functions, models, schemas, handlers, notations, prompts.

Applications and `tools.toolsets` use it. It may import `tools.view`, `tools.schema`, `tools.core` and
`errors`.
"""

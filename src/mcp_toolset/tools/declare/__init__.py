"""How a tool is declared: functions, models, schemas, handlers, notations, prompts."""

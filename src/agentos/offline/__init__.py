"""The built-in model server: a rule engine behind the vendors' wire formats, for working without keys or a network."""

MODEL_NAME = "offline-rules-1"

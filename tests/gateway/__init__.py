"""The gateway, as agents meet it."""

"""The backlog of an invented read-it-later service, for the demo."""

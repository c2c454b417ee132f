"""The calls of a client: what launches something, and the handlers."""

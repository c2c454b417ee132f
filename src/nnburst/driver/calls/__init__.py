"""The calls of a client: the asynchronous ones, and the handlers."""

"""The driver process: command line, supervisor, listener, workers."""

"""The driver: the process that prepares and executes models for its clients."""

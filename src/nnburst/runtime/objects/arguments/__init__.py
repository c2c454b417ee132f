"""The arguments of an execution: as the application sets them, and bound to bursts."""

"""What people look at when something is not as expected: log lines by topic, and pictures of models."""

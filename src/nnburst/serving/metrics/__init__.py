"""Prometheus metrics: of requests to the front, and of all executions that the driver counts."""

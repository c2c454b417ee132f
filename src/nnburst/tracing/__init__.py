"""Tracing: the places in the code where a tracer can look in."""

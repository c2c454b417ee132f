"""Implements a driver's device, its prepared models, its buffers and the memory of requests."""

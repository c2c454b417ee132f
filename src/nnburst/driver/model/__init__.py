"""The device that a driver offers, with its prepared models, its buffers and the memory of requests."""

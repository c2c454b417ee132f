"""Keeps the connection to a driver: handshake, upcalls, callbacks, the driver's process and its end."""

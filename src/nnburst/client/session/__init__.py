"""Connects to a driver: handshake, upcalls, callbacks, the driver's process, and recovery after its death."""

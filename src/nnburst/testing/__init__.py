"""Tools for testing drivers and clients: vectors, packet mutations, fault injection."""

"""Compilation caching: a client's cache files, what lies in them, and the key that seals them."""

"""Sends messages between client and driver over a socket, and answers them."""

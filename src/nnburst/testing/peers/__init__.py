"""Peers without a client's care: what no honest client would send."""

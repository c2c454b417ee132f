"""The control channel: what client and driver send each other beside the rings."""

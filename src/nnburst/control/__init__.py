"""The control channel: what client and driver say to each other beside the rings."""

"""What the packets of a burst travel through: its rings, the kicks that wake who waits, and their end."""

"""What a worker may use up of the machine, what it gives up, and how much it may log."""

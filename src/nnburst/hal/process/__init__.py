"""What belongs to the process that it was made in."""

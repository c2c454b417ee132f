"""What workers have executed: counted in pages that they write, read by the supervisor."""

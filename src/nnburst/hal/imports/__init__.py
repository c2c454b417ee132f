"""What the start of a driver waits for is imports: ways to import later, and to import many at once."""

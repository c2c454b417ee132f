"""Kills or stops processes at random points, and checks the processes and memory that remain."""

"""Executes finished compilations: arguments, steps, temporaries, control flow, fallback."""

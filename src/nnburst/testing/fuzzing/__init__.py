"""Fuzzing: mutated packets, control messages, models and network files against drivers and importer."""

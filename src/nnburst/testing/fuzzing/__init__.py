"""Sends mutated packets, control messages, models and network files to drivers and the importer."""

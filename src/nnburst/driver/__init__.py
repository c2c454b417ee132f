"""Prepares and executes models for clients, in a process of its own."""

"""Prepares and executes models for clients, in a separate process."""

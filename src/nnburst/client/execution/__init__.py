"""Executes over the socket: at once, later, fenced, reusable, by AIDL's burst."""

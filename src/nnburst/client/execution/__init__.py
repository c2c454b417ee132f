"""Executes over the socket: synchronously, asynchronously, with fences, reusably, or by AIDL's burst."""

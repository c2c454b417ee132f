"""The driver: what runs in the other process. Its rooms import downwards only."""

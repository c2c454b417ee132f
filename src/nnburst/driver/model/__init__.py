"""What a device holds: prepared models, the memory that requests lie in, and buffers."""

"""What every executor may use: the registry of operations, plans, layouts, arenas, tensors and windows."""

"""The parts that all executors may use: declared operations, plans, layouts, arenas, tensors, windows."""

"""Provides the parts that executors share: declared operations, plans, layouts, arenas, tensors, windows."""

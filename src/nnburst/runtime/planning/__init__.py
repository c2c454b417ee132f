"""Plans which device runs which operation in which step (runtime.md §3), as pure functions."""

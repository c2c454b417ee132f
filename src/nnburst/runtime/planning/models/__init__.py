"""Models as planning takes them: finished, in run order, with their versions and slices."""

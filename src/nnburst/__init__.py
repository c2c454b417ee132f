"""nnburst: execute a prepared neural network again and again in another process."""

"""How executions compute: their state, and what begins behind other computations."""

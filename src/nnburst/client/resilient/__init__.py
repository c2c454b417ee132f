"""What outlives its driver: devices, prepared models and bursts that are made again."""

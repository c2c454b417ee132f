"""Placement by measurement: what devices really take for steps, and the quickest plan that follows."""

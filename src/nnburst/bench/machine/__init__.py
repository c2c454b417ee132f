"""What a machine does beside a measurement, and whether figures can be believed."""

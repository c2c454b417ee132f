"""What a driver did in a conformance run, as data, as JSON and as one HTML page."""

"""Files of networks by their parts, as several layers read them. Nothing here executes or translates."""

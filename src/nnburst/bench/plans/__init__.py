"""Plans over several devices: what making one costs, and what executing one costs."""

"""How many hosts one head of Ray bears: measured costs, and a simulation of a start, a loss and clients."""

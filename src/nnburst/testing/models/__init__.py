"""Models to test with: random graphs, small models of every operation, network files, naive evaluator."""

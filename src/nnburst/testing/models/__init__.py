"""Models to test with: random graphs, small models of every operation, files, a naive evaluator."""

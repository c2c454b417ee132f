"""Provides models for tests: random graphs, small models of every operation, files, a naive evaluator."""

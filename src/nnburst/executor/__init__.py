"""Executors: what a driver computes with. `protocol` is the contract, each sibling implements it."""

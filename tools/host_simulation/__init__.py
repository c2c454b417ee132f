"""Finds how many hosts one head of Ray bears, by measured costs and a simulation of a start and a loss."""

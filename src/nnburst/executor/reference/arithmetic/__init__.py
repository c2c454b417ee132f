"""Arithmetic of the kernels: fixed point, quantised values, sums of products, hashes and random numbers."""

"""The framework: one model over several devices (NNAPI: libneuralnetworks).

planning/   which device runs which operation, in which steps: pure, model and answers in, plan out
"""

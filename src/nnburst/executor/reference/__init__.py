"""The reference executor: every operation, in numpy, right to the last bit.

operation.py   what an operation is made of, and the registry
tensor.py      an operand with memory, as kernels see it
operations/    the operations, one file per family; importing the package registers them all
fixed_point.py integer arithmetic shared by quantised kernels
plan.py        a prepared model: operations matched, constants unpacked
arena.py       memory for temporaries and scratch
layout.py      which steps can be bound once for given shapes, and where results lie
binding.py     one step: checks, shape rule, float16, kernel
frame.py       one graph with its operands
evaluator.py   what the graphs of an execution share; calls of subgraphs
execution.py   a bound request
executor.py    the Executor that a driver loads
"""

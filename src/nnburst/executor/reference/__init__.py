"""The reference executor: every operation, in numpy, right to the last bit.

operation.py   what an operation is made of, and the registry
tensor.py      an operand with memory, as kernels see it
operations/    the operations, one file per family; importing the package registers them all
fixed_point.py integer arithmetic shared by quantised kernels
plan.py        a prepared model: constants unpacked, temporaries planned
evaluator.py   a bound request: kernels in order
executor.py    the Executor that a driver loads
"""

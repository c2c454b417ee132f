"""Which device runs which operation, in which steps (runtime.md §3). Pure: model and answers in, plan out.

plan.py        the plan: steps, lists of operands, roles
candidate.py   what is asked of a device
planned.py     a plan with its prepared parts
models/        a finished model: run order, trailing arguments, version, slices
"""

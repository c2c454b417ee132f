"""Which device runs which operation, in which steps (runtime.md §3). Pure: model and answers in, plan out.

plan.py        the plan: steps, lists of operands, roles
candidate.py   what is asked of a device
models/        a finished model: run order, trailing arguments, version, slices
placement/     the best device for each operation
steps/         from best devices to steps, their models and roles
planner.py     all of it together, and the CPU if planning fails
planned.py     a plan with its prepared parts
drawing/       a plan as a table, as DOT and as mermaid text
cache_token.py under which token and file names a part is cached
memory_preference.py  alignment and padding of arguments and temporaries
"""

"""What every driver owes its clients, whatever it computes: checks on cases that it supports.

subject.py     a case, a connection, and executions of it over a burst
answers.py     what a driver says it supports
executions.py  many executions, two bindings, deadlines
lives.py       prepared models that come and go
checks.py      the registry, and how one is run
"""

"""Single operations of every type, rank and extent, with results computed on the spot.

recipes.py     what a case looks like: extent, edge values, constants
edges.py       values at the edges of a type, and which operations define them
builder.py     draws one operation by a recipe
cases.py       the triples (operation, type, rank), and the cases of each
bounds.py      how close results must be
graphs.py     random graphs of nothing but what a driver supports
trial.py       one case on a driver
left_out.py    which operations have no cases, and why
"""

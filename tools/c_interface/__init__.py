"""What follows from the table in `nnburst.capi.functions`: header, entry points, exports, documentation.

`PYTHONPATH=tools python -m c_interface` writes it, in a checkout; tests/capi compares it.
"""

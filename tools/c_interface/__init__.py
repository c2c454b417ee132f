"""Header, entry points, exports and documentation, written from the table in `nnburst.capi.functions`.

`PYTHONPATH=tools python -m c_interface` writes it, in a checkout; tests/capi compares it.
"""

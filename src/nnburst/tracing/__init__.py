"""Traces: processes record the work that they do in shared memory; files and reports are made from that.

Perfetto reads the files.
"""

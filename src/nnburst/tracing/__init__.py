"""Traces: what processes do when, recorded in shared memory and written as files that Perfetto reads."""

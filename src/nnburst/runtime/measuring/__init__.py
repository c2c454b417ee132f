"""Placement by measurement: what devices really take for steps, and the plan of least latency that follows.

part_signature.py     under which name a measurement is kept
part_timer.py         times one prepared part
cost_file.py          what was measured, kept for the user
measured_placement.py measures, searches, compares, decides
placement_report.py   what was measured and why the plan is what it is
"""

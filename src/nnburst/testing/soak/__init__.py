"""Soak: hours of mixed load on one driver, and whether anything grows.

series.py     numbers over time, and whether they rise by more than chance
crowd.py      the processes that make the load: some stay, some are killed, some stop reading
samples.py    what is looked at again and again
report.py     how it went, and the verdict
campaign.py   all of it together
__main__.py   `python -m nnburst.testing.soak --seconds 3600 --json soak.json`, and `--again soak.json`
"""

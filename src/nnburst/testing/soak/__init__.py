"""Soak: hours of mixed load on one driver, and whether anything grows.

series.py     numbers over time, and whether a straight line through them rises
crowd.py      the processes that make the load: some stay, some are killed, some stop reading
samples.py    what is looked at again and again
campaign.py   all of it together
__main__.py   `python -m nnburst.testing.soak --seconds 3600`
"""

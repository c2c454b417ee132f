"""What a driver did in a conformance run, as data, as JSON and as one HTML page.

results.py   what is recorded
verdict.py   what is required, and whether it was given
page.py      the page, which needs no other file and no network
"""

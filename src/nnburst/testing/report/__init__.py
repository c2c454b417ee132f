"""What a driver did in a conformance run, as data, as JSON and as one HTML page.

results.py   what is recorded
page.py      the page, which needs no other file and no network
files.py     both
recorder.py  a pytest session as a report
"""

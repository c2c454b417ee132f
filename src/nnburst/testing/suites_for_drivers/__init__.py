"""Has the test suites for users' own drivers and executors; see docs/testing_drivers.md.

pytest -p nnburst.testing.plugin --pyargs nnburst.testing.suites_for_drivers --nnburst-driver=NAME
"""

"""Has the test suites for drivers and executors of others; see docs/testing_drivers.md.

pytest -p nnburst.testing.plugin --pyargs nnburst.testing.suites_for_drivers --nnburst-driver=NAME
"""

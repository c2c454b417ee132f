"""Test suites for drivers and executors of others; see docs/testing_drivers.md.

    pytest -p nnburst.testing.plugin --pyargs nnburst.testing.suites_for_drivers --nnburst-driver=NAME

test_contract.py       what is supported is prepared, both ways to execute agree, deadlines hold
test_results.py        random graphs and conformance vectors give the results that they should
test_hostile_input.py  mutated models, requests and packets, and bad descriptors are refused
test_faults.py         drivers and clients are killed and stopped, and no other process notices
"""

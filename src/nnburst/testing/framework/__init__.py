"""The framework under test: devices that answer as they are told, and conformance over plans.

computing_device.py   devices in this process that compute by the reference executor
framework_runner.py   `--via` a compilation over several devices
"""

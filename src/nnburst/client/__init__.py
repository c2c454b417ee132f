"""The client: what a program uses to reach a driver.

`launch` and `connect` give a `Device`, which prepares a `PreparedModel`, which executes and opens bursts.
"""

"""Executors compute models for a driver; the contract between both is `nnburst.executor.base`.

There is one module or folder for each executor; `graph` and `operations` are for all of them.
"""

"""The front: a process that serves KServe v2 (Open Inference Protocol) over gRPC and HTTP.

The front is an ordinary client of the driver, so its crash harms no worker. The driver's supervisor starts
this package by name, and starts it again when it ends. It needs the extra `grpc`.
"""

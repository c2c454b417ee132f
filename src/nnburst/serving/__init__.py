"""The front: KServe v2 (Open Inference Protocol) over gRPC, in a process of its own.

A client of the driver like any other, so a front that crashes harms no worker. The driver's supervisor
starts it by name and starts it again when it ends. It needs the extra `grpc`.
"""

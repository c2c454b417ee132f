"""The front: KServe v2 (Open Inference Protocol) over gRPC, in a process of its own.

A client of the driver like any other, so a front that crashes harms no worker. The driver's supervisor
starts it by name and starts it again when it ends. It needs the extra `grpc`.

options.py     what the front is told on its command line
messages.py    what protobuf hands over
datatypes.py   KServe's data types and NNAPI's
regions.py     system shared memory that clients have registered
statistics.py  what happened to the requests of a model
tensors.py     requests to arrays, and arrays to responses
sequences.py   states of networks that have some, one for each sequence
network.py     one model, with requests in flight
descriptions.py what the protocol says about a model
service.py     the calls of the protocol
metrics.py     Prometheus
server.py      gRPC: addresses, TLS, limits, health
front.py       the process
"""

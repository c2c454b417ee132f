"""ONNX files, read without the `onnx` package: nothing is believed that was not checked.

wire.py           protobuf's encoding: fields of a message, all work charged
model.py          models, graphs, nodes, attributes, functions
tensor.py         tensors of a file and their values
rewriting.py      a file with other dimensions of its inputs
external_data.py  tensors whose values lie in other files
"""

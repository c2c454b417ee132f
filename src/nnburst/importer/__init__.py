"""From files of networks to NNAPI models.

load.py            `nnburst.load`
imported_model.py  what it returns
refused.py         how the parts say that a network cannot be had
tensor_type.py     what an operand is
constants.py       constants: folded when used, large ones into a pool
subgraph.py        an NNAPI subgraph while it is written
tflite/            .tflite files
onnx/              ONNX files
"""

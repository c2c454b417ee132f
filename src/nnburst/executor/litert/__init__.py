"""The `litert` executor: NNAPI models lowered to .tflite in memory and run by LiteRT's C library.

    executor.py     what a driver loads
    network.py      which operations can be lowered, and the lowering of a whole model
    lowering.py     what a lowering function sees; operations/ has one per NNAPI operation
    graph.py        the flatbuffer that is written
    split.py        models that the reference executor runs in part
    engines.py      one engine per thread that has requests bound
    native.py       the engine through csrc/litert.c, arguments used where they lie
    interpreter.py  the engine through the wheel's Interpreter, if the library is not the expected one

Needs the extra `litert`. No client and no driver imports this package by name;
`nnburst inspect` and the benchmark do.
"""

"""The `litert` executor: NNAPI models lowered to .tflite in memory and run by LiteRT's C library.

    network.py    which operations can be lowered, and the lowering of a whole model
    lowering.py   what a lowering function sees; operations/ has one per NNAPI operation
    graph.py      the flatbuffer that is written
    engine.py     one instance of the engine; native through csrc/litert.c, or the wheel's Interpreter
    executor.py   what a driver loads

Needs the extra `litert`; nothing else in nnburst imports this package.
"""

"""From .tflite files to NNAPI models.

reader.py       checked access: no read outside the file, all work charged to it
schema.py       the format's generated classes, made to read through it
tflite_file.py  subgraphs, operator names, buffers, signatures, metadata
tensors.py      a tensor's type, shape and quantisation
constants.py    constants of the file
state.py        variables as inputs and outputs
graph.py        one subgraph while it is translated: which value each tensor has become
operator.py     one operator while it is translated, and the table
operators/      one table entry per operator, one file per family
translation.py  the whole file
"""

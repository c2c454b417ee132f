"""From ONNX files to NNAPI models.

layout.py        orders of axes: images are N×C×H×W in the file and N×H×W×C in the model
tensor.py        a tensor of the file while it is translated
graph.py         the subgraph that grows: tensors in the forms that operations take
node.py          one node while it is translated, and the table
folding.py       what is known is computed: shapes, indices
quantization.py  which integers stand for which real numbers
operators/       one table entry per operator, one file per family
translation.py   the whole file
"""

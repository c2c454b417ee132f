"""From files of networks to NNAPI models.

load.py            `nnburst.load`
imported_model.py  what it returns
refused.py         how the parts say that a network cannot be had
tflite/            .tflite files
"""

"""Networks of one operator whose inputs are computed or integer constants."""

from __future__ import annotations

from nnburst.testing.models.tflite_networks.registry import EVERY, IMAGE, simple

for unary in ("ABS", "NEG", "EXP", "SIN", "FLOOR"):
    simple(unary, [(2, 3)], (2, 3))
for unary in ("RELU", "RELU6", "RELU_N1_TO_1"):
    simple(unary, [(2, 3)], (2, 3), EVERY, same=True)
simple("RELU", [(2, 60)], (2, 60), ("UINT8", "INT8"), tag="-requantized")
simple("HARD_SWISH", [(2, 3)], (2, 3), EVERY)
simple("SQUARE", [(2, 3)], (2, 3))
simple("SQUARED_DIFFERENCE", [(2, 3), (2, 3)], (2, 3))
simple("LEAKY_RELU", [(2, 60)], (2, 60), EVERY, "LeakyReluOptions", alpha=0.125)
simple("ADD", [(2, 3), (1, 3)], (2, 3), (*EVERY, "INT32"), "AddOptions")
simple("ADD", [(2, 3), (2, 3)], (2, 3), EVERY, "AddOptions", tag="-relu", fusedActivationFunction=1)
simple("SUB", [(2, 3), (2, 3)], (2, 3), EVERY, "SubOptions")
simple("MUL", [(2, 3), (3,)], (2, 3), EVERY, "MulOptions")
simple("DIV", [(2, 3), (2, 3)], (2, 3), ("FLOAT32",), "DivOptions")
simple("ADD_N", [(2, 3)] * 3, (2, 3))
for binary in ("MAXIMUM", "MINIMUM"):
    simple(binary, [(2, 3), (1, 3)], (2, 3), (*EVERY, "INT32"), same=True)
for comparison in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"):
    simple(comparison, [(2, 3), (3,)], (2, 3), ("FLOAT32", "INT32"), out_kind="BOOL")
simple("CAST", [(2, 3)], (2, 3), ("INT32",), "CastOptions", out_kind="FLOAT32")

simple("RESHAPE", [IMAGE], (3, 20), EVERY, constants=[(3, 20)], same=True)
simple("SQUEEZE", [(1, 4, 1, 3)], (4, 3), ("FLOAT32",), "SqueezeOptions", squeezeDims=[0, 2])
simple("EXPAND_DIMS", [(4, 3)], (4, 1, 3), ("FLOAT32",), constants=[1])
simple("TRANSPOSE", [IMAGE], (1, 5, 4, 3), EVERY, constants=[(0, 2, 1, 3)], same=True)
simple("REVERSE_V2", [(2, 3)], (2, 3), ("FLOAT32",), constants=[(1,)])
simple("SLICE", [IMAGE], (1, 2, 3, 3), EVERY, constants=[(0, 1, 1, 0), (1, 2, 3, -1)], same=True)
simple(
    "STRIDED_SLICE",
    [IMAGE],
    (1, 2, 3),
    EVERY,
    "StridedSliceOptions",
    constants=[(0, 1, 0, 0), (1, 2, 5, 3), (1, 1, 3, 1)],
    same=True,
    shrinkAxisMask=2,
)
simple("PAD", [IMAGE], (1, 6, 8, 3), EVERY, constants=[[(0, 0), (1, 1), (1, 2), (0, 0)]], same=True)
simple(
    "MIRROR_PAD", [(3, 4)], (5, 7), ("FLOAT32",), "MirrorPadOptions", constants=[[(1, 1), (2, 1)]]
)
simple("TILE", [(2, 3)], (4, 9), ("FLOAT32",), constants=[(2, 3)])
for name, reduced in (
    ("MEAN", EVERY),
    ("REDUCE_MAX", EVERY),
    ("REDUCE_MIN", EVERY),
    ("SUM", ()),
    ("REDUCE_PROD", ()),
):
    simple(name, [IMAGE], (1, 3), reduced, "ReducerOptions", constants=[(1, -2)], same=True)
    simple(name, [(4, 3)], (1, 3), (), "ReducerOptions", constants=[0], tag="-keep", keepDims=True)
simple(
    "ARG_MAX",
    [(3, 7)],
    (3,),
    EVERY,
    "ArgMaxOptions",
    constants=[-1],
    out_kind="INT32",
    outputType=2,
)
simple(
    "ARG_MIN", [(3, 7)], (7,), (), "ArgMinOptions", constants=[0], out_kind="INT32", outputType=2
)
simple("CONCATENATION", [(2, 3), (2, 4)], (2, 7), EVERY, "ConcatenationOptions", same=True, axis=-1)
simple("PACK", [(2, 3), (2, 3)], (2, 2, 3), EVERY, "PackOptions", same=True, axis=1, valuesCount=2)
simple(
    "SPACE_TO_DEPTH",
    [(1, 4, 6, 2)],
    (1, 2, 3, 8),
    EVERY,
    "SpaceToDepthOptions",
    same=True,
    blockSize=2,
)
simple(
    "DEPTH_TO_SPACE",
    [(1, 2, 3, 8)],
    (1, 4, 6, 2),
    EVERY,
    "DepthToSpaceOptions",
    same=True,
    blockSize=2,
)
simple(
    "SPACE_TO_BATCH_ND",
    [(1, 4, 5, 2)],
    (4, 2, 3, 2),
    EVERY,
    constants=[(2, 2), [(0, 0), (0, 1)]],
    same=True,
)
for crops, size in (([(0, 0), (0, 0)], (4, 6)), ([(1, 0), (0, 2)], (3, 4))):
    simple(
        "BATCH_TO_SPACE_ND",
        [(4, 2, 3, 2)],
        (1, *size, 2),
        EVERY,
        constants=[(2, 2), crops],
        same=True,
        tag="-cropped" if size == (3, 4) else "",
    )
for resize in ("BILINEAR", "NEAREST_NEIGHBOR"):
    words = "".join(word.capitalize() for word in ("resize", *resize.lower().split("_")))
    simple(
        f"RESIZE_{resize}", [(1, 3, 4, 2)], (1, 6, 5, 2), EVERY, f"{words}Options",
        constants=[(6, 5)], same=True,
    )  # fmt: skip
    simple(
        f"RESIZE_{resize}", [(1, 3, 4, 2)], (1, 6, 5, 2), (), f"{words}Options",
        constants=[(6, 5)], tag="-half", halfPixelCenters=True,
    )  # fmt: skip
for pool in ("AVERAGE", "MAX"):
    simple(
        f"{pool}_POOL_2D", [IMAGE], (1, 2, 3, 3), EVERY, "Pool2DOptions", same=True,
        strideW=2, strideH=2, filterWidth=2, filterHeight=3, padding=0, fusedActivationFunction=3,
    )  # fmt: skip
simple(
    "L2_POOL_2D", [IMAGE], (1, 2, 4, 3), (), "Pool2DOptions",
    strideW=1, strideH=1, filterWidth=2, filterHeight=3, padding=1,
)  # fmt: skip
simple("LOG_SOFTMAX", [(2, 5)], (2, 5))
simple("L2_NORMALIZATION", [(2, 5)], (2, 5), (), "L2NormOptions")
simple("BATCH_MATMUL", [(2, 3, 4), (2, 5, 4)], (2, 3, 5), (), "BatchMatMulOptions", adjY=True)

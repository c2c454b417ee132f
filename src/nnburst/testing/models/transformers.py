"""Writes transformers as ONNX files: an encoder, a decoder in three forms, a streaming speech encoder.

Weights are random and not trained: results are meaningless, but take the time and memory of any network of
the size. The decoder's forms compute the same:

    concat    past keys and values are inputs, and outputs that are longer by the new tokens (Concat)
    scatter   caches of a fixed length, into which TensorScatter of opset 24 writes
    grouped   caches of a fixed length, into which GroupQueryAttention of com.microsoft writes

The only input of each is token ids; the position in the sequence is a state, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.formats import onnx_writer
from nnburst.formats.onnx_writer import Attribute

Array = npt.NDArray[np.generic]
Form = Literal["concat", "scatter", "grouped"]
FORMS: Final[tuple[Form, ...]] = ("concat", "scatter", "grouped")

_OPSET: Final = 24
_IR_VERSION: Final = 11
_ELEMENTS: Final = {np.dtype("<f4"): 1, np.dtype("<i4"): 6, np.dtype("<i8"): 7, np.dtype("?"): 9}
_FLOAT, _INT32, _INT64 = 1, 6, 7
_MICROSOFT: Final = "com.microsoft"


class TransformerSize(msgspec.Struct, frozen=True):
    """The size of a transformer.

    Attributes:
        layers: number of layers, each with attention and two products.
        width: length of a token's vector.
        heads: number of attention heads; divides `width` into even parts.
        words: number of different token ids.
        context: the most tokens.
        seed: seed of the weights.
    """

    layers: int
    width: int
    heads: int
    words: int
    context: int
    seed: int = 0

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads


#: 16.9 million parameters, 4 of 10 of them in the token embedding.
DECODER: Final = TransformerSize(6, 384, 6, 16384, 8192)
#: A token takes less than 100 µs.
SMALL_DECODER: Final = TransformerSize(1, 64, 2, 256, 128)
#: 5.3 million parameters.
ENCODER: Final = TransformerSize(4, 256, 4, 8000, 512)
#: For frames of a spectrum of 80 bands; attention reaches back `context` frames.
SPEECH: Final = TransformerSize(4, 192, 4, 0, 64)
BANDS: Final = 80


class _Graph:
    """A graph that is being written."""

    def __init__(self, size: TransformerSize) -> None:
        self.size = size
        self._random = np.random.default_rng(size.seed)
        self._nodes: list[bytes] = []
        self._initializers: list[bytes] = []
        self._count = 0
        self._domains: set[str] = set()

    def name(self) -> str:
        self._count += 1
        return f"t{self._count}"

    def op(
        self,
        kind: str,
        *inputs: str,
        named: Sequence[str] = (),
        domain: str = "",
        **attributes: Attribute,
    ) -> str:
        """Add an operator; the name of its first output."""
        outputs = list(named) or [self.name()]
        self._nodes.append(onnx_writer.node(kind, inputs, outputs, attributes, domain))
        if domain:
            self._domains.add(domain)
        return outputs[0]

    def constant(self, array: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        values = np.ascontiguousarray(array, dtype)
        shape = np.shape(array)
        name = self.name()
        element = _ELEMENTS[values.dtype]
        self._initializers.append(onnx_writer.tensor(name, element, shape, values.tobytes()))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, "<i8")

    def weight(self, *shape: int) -> str:
        drawn = self._random.standard_normal(shape, np.float32) / np.sqrt(shape[0])
        return self.constant(drawn, "<f4")

    def dense(self, x: str, rows: int, columns: int) -> str:
        product = self.op("MatMul", x, self.weight(rows, columns))
        return self.op("Add", product, self.weight(columns))

    def norm(self, x: str, named: Sequence[str] = ()) -> str:
        ones = self.constant(np.ones(self.size.width), "<f4")
        zeros = self.constant(np.zeros(self.size.width), "<f4")
        return self.op("LayerNormalization", x, ones, zeros, named=named)

    def feed_forward(self, x: str) -> str:
        width = self.size.width
        return self.dense(self.op("Gelu", self.dense(x, width, 4 * width)), 4 * width, width)

    def length(self, x: str, axis: int) -> str:
        """The extent of an axis, as a tensor of shape (1,)."""
        return self.op("Shape", x, start=axis, end=axis + 1)

    def split_heads(self, x: str) -> str:
        """Reshape (batch, tokens, width) to (batch, heads, tokens, head)."""
        parts = self.integers(0, 0, self.size.heads, self.size.head)
        return self.op("Transpose", self.op("Reshape", x, parts), perm=[0, 2, 1, 3])

    def join_heads(self, x: str) -> str:
        together = self.op("Transpose", x, perm=[0, 2, 1, 3])
        return self.op("Reshape", together, self.integers(0, 0, self.size.width))

    def attend(self, q: str, k: str, v: str, bias: str) -> str:
        """Attention: softmax(q·k / √head + bias)·v, with the heads joined."""
        scale = self.constant(1 / np.sqrt(self.size.head), "<f4")
        turned = self.op("Transpose", k, perm=[0, 1, 3, 2])
        scores = self.op("MatMul", self.op("Mul", q, scale), turned)
        weights = self.op("Softmax", self.op("Add", scores, bias), axis=-1)
        return self.join_heads(self.op("MatMul", weights, v))

    def allowed(self, mask: str) -> str:
        """0 for true elements of a mask; for others a number for which softmax gives 0."""
        zero, never = self.constant(0, "<f4"), self.constant(-1e9, "<f4")
        return self.op("Where", mask, zero, never)

    def finish(self, inputs: Sequence[bytes], outputs: Sequence[bytes]) -> bytes:
        return onnx_writer.model(
            self._nodes,
            self._initializers,
            inputs,
            outputs,
            opset=_OPSET,
            version=_IR_VERSION,
            domains=sorted(self._domains),
        )


# -- encoder ---------------------------------------------------------------------------------------


def encoder(size: TransformerSize = ENCODER) -> bytes:
    """An encoder: inputs `ids`, `mask` (INT64, batch × tokens), output `hidden` (batch × tokens × width).

    Batch and tokens are open. The mask is 1 for tokens and 0 for padding. Attention and norms are BERT's.
    """
    g = _Graph(size)
    words = g.op("Gather", g.weight(size.words, size.width), "ids")
    length = g.length("ids", 1)
    first = g.integers(0)
    places = g.op("Slice", g.weight(size.context, size.width), first, length, first)
    x = g.norm(g.op("Add", words, places))
    seen = g.op("Equal", g.op("Unsqueeze", "mask", g.integers(1, 2)), g.integers(1))
    bias = g.allowed(seen)
    for _ in range(size.layers):
        q, k, v = (g.split_heads(g.dense(x, size.width, size.width)) for _ in range(3))
        mixed = g.dense(g.attend(q, k, v, bias), size.width, size.width)
        x = g.norm(g.op("Add", x, mixed))
        x = g.norm(g.op("Add", x, g.feed_forward(x)))
    g.op("Identity", x, named=["hidden"])
    return g.finish(
        [
            onnx_writer.described("ids", _INT64, ["batch", "tokens"]),
            onnx_writer.described("mask", _INT64, ["batch", "tokens"]),
        ],
        [onnx_writer.described("hidden", _FLOAT, ["batch", "tokens", size.width])],
    )


# -- decoder ---------------------------------------------------------------------------------------


def decoder(form: Form, size: TransformerSize = DECODER) -> bytes:
    """A decoder: input `ids` (INT64, 1 × tokens, open), output `logits` (1 × words) of the last token.

    All other inputs and outputs are states; see `decoder_states`.
    """
    g = _Graph(size)
    table = g.weight(size.words, size.width)
    x = g.op("Gather", table, "ids")
    count = g.length("ids", 1)
    start = g.length("past_key_0", 2) if form == "concat" else "position"
    end = g.op("Add", start, count, named=() if form == "concat" else ["next_position"])
    places = g.op("Slice", g.weight(size.context, size.width), start, end, g.integers(0))
    x = g.op("Add", x, places)
    attend = (
        _GroupedAttention(g, end) if form == "grouped" else _MaskedAttention(g, form, start, end)
    )
    for layer in range(size.layers):
        normed = g.norm(x)
        q, k, v = (g.dense(normed, size.width, size.width) for _ in range(3))
        x = g.op("Add", x, g.dense(attend(layer, q, k, v), size.width, size.width))
        x = g.op("Add", x, g.feed_forward(g.norm(x)))
    last = g.op("Gather", g.norm(x), g.constant(-1, "<i8"), axis=1)
    g.op("MatMul", last, g.op("Transpose", table, perm=[1, 0]), named=["logits"])
    inputs = [onnx_writer.described("ids", _INT64, [1, "tokens"])]
    outputs = [onnx_writer.described("logits", _FLOAT, [1, size.words])]
    if form != "concat":
        inputs.append(onnx_writer.described("position", _INT64, [1]))
        outputs.append(onnx_writer.described("next_position", _INT64, [1]))
    for layer in range(size.layers):
        for kind in ("key", "value"):
            before, after = ("past", "all") if form == "concat" else (size.context, size.context)
            ends = (1, size.heads), (size.head,)
            inputs.append(
                onnx_writer.described(f"past_{kind}_{layer}", _FLOAT, [*ends[0], before, *ends[1]])
            )
            outputs.append(
                onnx_writer.described(
                    f"present_{kind}_{layer}", _FLOAT, [*ends[0], after, *ends[1]]
                )
            )
    return g.finish(inputs, outputs)


def decoder_states(form: Form, size: TransformerSize = DECODER) -> dict[str, str]:
    """The states of a decoder: names of outputs by names of inputs."""
    states = {
        f"past_{kind}_{layer}": f"present_{kind}_{layer}"
        for layer in range(size.layers)
        for kind in ("key", "value")
    }
    return states if form == "concat" else {"position": "next_position", **states}


class _MaskedAttention:
    """Attention by MatMul and Softmax, over keys and values that Concat or TensorScatter joins."""

    def __init__(self, g: _Graph, form: Form, start: str, end: str) -> None:
        self._g, self._form, self._start = g, form, start
        zero, one = g.constant(0, "<i8"), g.constant(1, "<i8")
        scalar = g.integers()
        first, stop = g.op("Reshape", start, scalar), g.op("Reshape", end, scalar)
        rows = g.op("Unsqueeze", g.op("Range", first, stop, one), g.integers(1))
        reach = stop if form == "concat" else g.constant(g.size.context, "<i8")
        columns = g.op("Range", zero, reach, one)
        self._bias = g.allowed(g.op("LessOrEqual", columns, rows))

    def __call__(self, layer: int, q: str, k: str, v: str) -> str:
        g = self._g
        joined = [
            self._join(g.split_heads(x), f"{kind}_{layer}")
            for x, kind in ((k, "key"), (v, "value"))
        ]
        return g.attend(g.split_heads(q), joined[0], joined[1], self._bias)

    def _join(self, x: str, name: str) -> str:
        past, present = f"past_{name}", [f"present_{name}"]
        if self._form == "concat":
            return self._g.op("Concat", past, x, named=present, axis=2)
        return self._g.op("TensorScatter", past, x, self._start, named=present, axis=-2)


class _GroupedAttention:
    """Attention by GroupQueryAttention."""

    def __init__(self, g: _Graph, end: str) -> None:
        self._g = g
        total = g.op("Cast", end, to=_INT32)
        one = g.constant([1], "<i4")
        self._before_last = g.op("Sub", total, one)
        self._total = g.op("Reshape", total, g.integers())

    def __call__(self, layer: int, q: str, k: str, v: str) -> str:
        g = self._g
        mixed = g.name()
        return g.op(
            "GroupQueryAttention",
            q,
            k,
            v,
            f"past_key_{layer}",
            f"past_value_{layer}",
            self._before_last,
            self._total,
            named=[mixed, f"present_key_{layer}", f"present_value_{layer}"],
            domain=_MICROSOFT,
            num_heads=g.size.heads,
            kv_num_heads=g.size.heads,
        )


# -- streaming speech encoder ----------------------------------------------------------------------


def speech_encoder(size: TransformerSize = SPEECH) -> bytes:
    """A speech encoder: input `frames` (float32, 1 × frames × BANDS), output `hidden` (1 × frames × width).

    The number of frames is open. States hold the past: the last two frames of a convolution, and for each
    layer the keys and values of the last `context` frames; see `speech_states`.
    """
    g = _Graph(size)
    heard = g.op("Concat", "past_frames", "frames", axis=1)
    last = g.op("Slice", heard, g.integers(-2), g.integers(2**31 - 1), g.integers(1))
    g.op("Identity", last, named=["present_frames"])
    turned = g.op("Transpose", heard, perm=[0, 2, 1])
    convolved = g.op("Conv", turned, g.weight(size.width, BANDS, 3), kernel_shape=[3])
    x = g.norm(g.op("Transpose", convolved, perm=[0, 2, 1]))
    bias = g.constant(0, "<f4")
    for layer in range(size.layers):
        normed = g.norm(x)
        q, k, v = (g.split_heads(g.dense(normed, size.width, size.width)) for _ in range(3))
        joined = [_window(g, y, f"{kind}_{layer}") for y, kind in ((k, "key"), (v, "value"))]
        x = g.op("Add", x, g.dense(g.attend(q, joined[0], joined[1], bias), size.width, size.width))
        x = g.op("Add", x, g.feed_forward(g.norm(x)))
    g.norm(x, named=["hidden"])
    cache = [1, size.heads, size.context, size.head]
    names = [f"{kind}_{layer}" for layer in range(size.layers) for kind in ("key", "value")]
    return g.finish(
        [
            onnx_writer.described("frames", _FLOAT, [1, "frames", BANDS]),
            onnx_writer.described("past_frames", _FLOAT, [1, 2, BANDS]),
            *(onnx_writer.described(f"past_{name}", _FLOAT, cache) for name in names),
        ],
        [
            onnx_writer.described("hidden", _FLOAT, [1, "frames", size.width]),
            onnx_writer.described("present_frames", _FLOAT, [1, 2, BANDS]),
            *(onnx_writer.described(f"present_{name}", _FLOAT, cache) for name in names),
        ],
    )


def _window(g: _Graph, x: str, name: str) -> str:
    """Join keys or values of past and new frames; the last `context` of them become the state."""
    joined = g.op("Concat", f"past_{name}", x, axis=2)
    begin = g.integers(-g.size.context)
    g.op("Slice", joined, begin, g.integers(2**31 - 1), g.integers(2), named=[f"present_{name}"])
    return joined


def speech_states(size: TransformerSize = SPEECH) -> dict[str, str]:
    """The states of the speech encoder: names of outputs by names of inputs."""
    names = ["frames"] + [f"{k}_{layer}" for layer in range(size.layers) for k in ("key", "value")]
    return {f"past_{name}": f"present_{name}" for name in names}

"""Streams tokens of a decoder whose keys and values stay in the driver.

    python examples/decoder.py [FORM ...]

The decoder is made here, in three forms that compute the same: past and present as inputs and outputs
(concat), caches that TensorScatter writes (scatter) or GroupQueryAttention (grouped). Its weights are drawn
from a seed, so its words mean nothing. Two sequences take turns on one burst; a request carries token ids,
an answer the likeliest next one. Needs nnburst[onnxruntime].
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

import numpy as np

import nnburst
from nnburst.testing.models.transformers import (
    FORMS,
    Form,
    TransformerSize,
    decoder,
    decoder_states,
)

SIZE = TransformerSize(layers=2, width=128, heads=2, words=4096, context=256)
PROMPTS = ([3, 1, 4, 1, 5], [2, 7, 1, 8])
COUNT = 16


def stream(sequence: nnburst.Burst, prompt: Sequence[int]) -> Iterator[int]:
    """Tokens as they come, without end."""
    (token,) = sequence.execute([np.array([prompt])]).outputs
    step = sequence.bind([nnburst.Memory(8).array(np.int64, (1, 1))])
    while True:
        yield int(token[0])
        step.inputs[0][...] = token
        (token,) = step.run(timeout=10.0).outputs


def show(form: Form, device: nnburst.Device) -> None:
    """Stream both sequences in turn, each from a slot of its own."""
    network = nnburst.load(
        decoder(form, SIZE),  # the bytes of an .onnx file
        as_graph=True,
        states=decoder_states(form, SIZE),
        resident=True,
        largest=["logits"],
    )
    with (
        device.prepare(network) as prepared,
        prepared.open_burst() as burst,
        burst.slot() as one,
        burst.slot() as other,
    ):
        streams = [stream(slot, prompt) for slot, prompt in zip((one, other), PROMPTS, strict=True)]
        for _ in range(COUNT):
            print(form, *(next(tokens) for tokens in streams), flush=True)


if __name__ == "__main__":
    with nnburst.launch("onnxruntime") as driver:
        for chosen in FORMS:
            if chosen in (sys.argv[1:] or FORMS):
                show(chosen, driver)

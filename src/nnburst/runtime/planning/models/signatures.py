"""The core operations' signatures, by which models are validated and versions found."""

from __future__ import annotations

from typing import Final

import nnburst.executor.reference.operations  # noqa: F401 - fills the registry
from nnburst.executor.graph.operation import REGISTRY

SIGNATURES: Final = {kind: definition.signature for kind, definition in REGISTRY.items()}

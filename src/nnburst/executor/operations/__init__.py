"""Declares every operation: which operands it takes, and the shapes and types of its results.

There is one module for each family of operations. Importing this package fills the registry of
`nnburst.executor.graph.operation`; it loads no kernel.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operation import REGISTRY
from nnburst.hal.utils import import_modules_of

import_modules_of(__name__, __path__)

#: The signatures of all operations; validation reads them.
SIGNATURES: Final = {kind: definition.signature for kind, definition in REGISTRY.items()}

"""Every operation's declaration: signature and shape rule, one file per family.

Importing this package fills the registry of `nnburst.executor.graph.operation`; it loads no kernel.
"""

from __future__ import annotations

from typing import Final

from nnburst.executor.graph.operation import REGISTRY
from nnburst.hal.imports.folders import import_modules_of

import_modules_of(__name__, __path__)

#: What every operation accepts: what validation takes.
SIGNATURES: Final = {kind: definition.signature for kind, definition in REGISTRY.items()}

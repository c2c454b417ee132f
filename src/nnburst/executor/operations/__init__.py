"""Every operation's declaration: signature and shape rule, one file per family.

Importing this package fills the registry of `nnburst.executor.graph.operation`; it loads no kernel.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

from nnburst.executor.graph.operation import REGISTRY

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

#: What every operation accepts: what validation takes.
SIGNATURES: Final = {kind: definition.signature for kind, definition in REGISTRY.items()}

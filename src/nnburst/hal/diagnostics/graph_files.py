"""Pictures of models in `NNBURST_GRAPH_DIR`, and in the log of the tag `model`."""

from __future__ import annotations

import itertools
import logging
import os
import re
from typing import Final

from nnburst.hal.diagnostics import vlog
from nnburst.hal.diagnostics.graph_dump import Drawing, dot
from nnburst.hal.environment import GRAPH_DIR
from nnburst.hal.model import Model

logger = logging.getLogger(__name__)
_numbers: Final = itertools.count(1)


def dump_model(model: Model, name: str) -> None:
    """Log a model if its tag is on, without any value, and write it to the folder if there is one."""
    if vlog.on("model"):
        vlog.write_all("model", dot(model, name, Drawing(values=False)))
    if GRAPH_DIR.is_set:
        write_picture(name, dot(model, name))


def write_picture(name: str, text: str) -> None:
    """Write a picture to the folder, which must be set; a warning if that fails."""
    words = re.sub(r"[^\w.-]+", "_", name)[:60]
    path = GRAPH_DIR.read() / f"{os.getpid()}-{next(_numbers):03}-{words}.dot"
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        logger.warning("%s: the picture of %s is not written: %s", GRAPH_DIR.name, name, error)

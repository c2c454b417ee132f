"""A finished model, or one that it refers to, as devices get it."""

from __future__ import annotations

from nnburst.hal.model import Model
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.models.model_maker import ModelMaker


def hal_model(source: FinishedModel, subgraph: int = 0) -> tuple[Model, tuple[int, ...]]:
    """One subgraph as the main one of a model of its own, and which of the client's pools its pools are."""
    maker = ModelMaker(source.model)
    main = maker.used_part(source.subgraph(subgraph))
    return maker.build(main, relaxed=source.relaxed[subgraph]), maker.pools

"""Small models with inputs, at least one for every operation: what fuzzing and tests start from.

all_models.py  all of them, and vectors as such
drawn.py       one operation each, drawn as random graphs are; every type that its template knows
made.py        made by hand: what no random graph has (control flow, detection), chains, pools
cells.py       likewise: one step of cells that keep a state
source.py      how a model made by hand collects its inputs
"""

from nnburst.testing.models.small_models.all_models import (
    all_models,
    from_vector,
    some_per_operation,
)
from nnburst.testing.models.small_models.source import SmallModel

__all__ = ["SmallModel", "all_models", "from_vector", "some_per_operation"]

"""Small models with inputs, at least one for every operation: what fuzzing and tests start from."""

from nnburst.testing.models.small_models.all_models import (
    all_models,
    from_vector,
    some_per_operation,
)
from nnburst.testing.models.small_models.source import SmallModel

__all__ = ["SmallModel", "all_models", "from_vector", "some_per_operation"]

"""Checks whether a model, a request or a memory description is valid by the HAL's rules.

Everything that another process sends is checked here before it is used. Rules have the ids of the project's
list (M models, O operands, P operations and graphs, R requests, D memory descriptions, S small values); every
failure is an InvalidArgument whose message begins with the id. The time is linear in the size of the value,
sizes are exact integers, and no function recurses.
"""

from nnburst.hal.validation.model import validate_model
from nnburst.hal.validation.request import (
    Dimensions,
    RequestValidator,
    validate_memory_desc,
    validate_request,
)

__all__ = [
    "validate_model",
    "validate_request",
    "RequestValidator",
    "Dimensions",
    "validate_memory_desc",
]

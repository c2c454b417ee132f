"""The calls of a client, one module for each interface of the HAL."""

from nnburst.driver.handlers import buffer, burst, device, objects, prepared_model
from nnburst.driver.handlers.registry import HANDLERS, WORK

__all__ = ["HANDLERS", "WORK", "buffer", "burst", "device", "objects", "prepared_model"]

"""What protobuf and gRPC hand over: their classes are made at run time and have no types."""

from typing import Any

Message = Any
Context = Any

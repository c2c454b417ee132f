"""The class by which LitServe computes, which its processes import."""

from __future__ import annotations

import base64
import sys
from typing import Any

import litserve
from fastapi import Response
from others import Network


class Computes(litserve.LitAPI):  # type: ignore[misc]
    """The network that the program was started with."""

    def setup(self, device):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201, ARG002
        """Load it; once in each process."""
        self.network = Network(sys.argv[2])

    def decode_request(self, request):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
        """The input's bytes. Without a type LitServe hands over the JSON as it is."""
        return base64.b64decode(request["content"])

    def predict(self, x: bytes, **_: Any) -> bytes:  # noqa: ANN401
        """The output's bytes."""
        return self.network.compute(x)

    def encode_response(self, output: bytes, **_: Any) -> Response:  # noqa: ANN401
        """An answer whose body they are."""
        return Response(output)

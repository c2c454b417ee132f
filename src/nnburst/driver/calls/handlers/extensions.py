"""IDevice: vendor extensions."""

from __future__ import annotations

from nnburst.control.channel import Fds
from nnburst.control.messages.device import GetSupportedExtensions, SupportedExtensions
from nnburst.control.service import Answer
from nnburst.driver.calls.handlers.registry import answers
from nnburst.driver.session.client_session import ClientSession


@answers(GetSupportedExtensions)
def get_supported_extensions(
    session: ClientSession, _call: GetSupportedExtensions, _fds: Fds
) -> Answer:
    """The extensions that models may use."""
    return SupportedExtensions(session.device.supported_extensions()), Fds()

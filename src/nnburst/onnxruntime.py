"""nnburst as a plugin execution provider of onnxruntime: where its library is, and the name of the provider.

It imports nothing of onnxruntime, which loads the library by its path (docs/onnxruntime_provider.md).
"""

from __future__ import annotations

from typing import Final

from nnburst.capi.installed import PROVIDER_LIBRARY
from nnburst.hal.errors import DeviceUnavailable

_NAME: Final = "NnburstExecutionProvider"


def get_library_path() -> str:
    """Path of the library, for `onnxruntime.register_execution_provider_library`.

    Raises:
        DeviceUnavailable: this nnburst was built without it.
    """
    if not PROVIDER_LIBRARY.is_file():
        raise DeviceUnavailable(
            f"{PROVIDER_LIBRARY}: the file does not exist: this nnburst was built without the provider"
        )
    return str(PROVIDER_LIBRARY)


def get_ep_name() -> str:
    """The provider's name, which its devices have as `ep_name`."""
    return _NAME

"""AttributeList: the attributes of vendor extensions that a compilation or an execution was given."""

from __future__ import annotations

from nnburst.hal.errors import UnexpectedNull
from nnburst.hal.extensions.attributes import ExtensionAttribute, check_attributes
from nnburst.runtime.extensions.type_registry import TYPES


class AttributeList:
    """In the order in which they were added.

    NNAPI: RT:X8. DEVIATES: a name that no device has is refused, as it is for types (RT:X3).
    """

    def __init__(self) -> None:
        """None yet."""
        self._added: list[ExtensionAttribute] = []

    @property
    def added(self) -> tuple[ExtensionAttribute, ...]:
        """All of them."""
        return tuple(self._added)

    def check_given(self, extension: str | None, value: bytes | memoryview | None) -> None:
        """What comes before every other check.

        Raises:
            UnexpectedNull: a name or bytes are missing.
        """
        if extension is None or value is None:
            what = "extension" if extension is None else "value"
            raise UnexpectedNull(f"add_extension_attribute: {what} is None")

    def add(self, extension: str, code: int, value: bytes | memoryview) -> None:
        """Add one; from now on its extension has a prefix in this process (RT:X2).

        Raises:
            InvalidArgument: no device has the extension, the code has more than 16 bits, or it was added
                before; BAD_DATA.
        """
        TYPES.prefix(extension)  # before the value is read, as long as its length says
        attribute = ExtensionAttribute(extension, code, bytes(value))
        check_attributes((*self._added, attribute))
        self._added.append(attribute)

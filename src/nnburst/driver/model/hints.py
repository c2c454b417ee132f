"""Hints of a client about one preparation or one execution, as attributes of extensions."""

from __future__ import annotations

import msgspec

from nnburst.hal.extensions import number_of, prefix_of
from nnburst.hal.extensions.attributes import ExtensionAttribute, Hints
from nnburst.hal.validation.broken import Broken
from nnburst.hal.validation.values import validate_extension_prefixes, validate_unique_tokens


def attributes_of(hints: Hints | msgspec.UnsetType) -> tuple[ExtensionAttribute, ...]:
    """What hints stand for; nothing for those that belong to no extension, which no executor could read.

    Args:
        hints: hostile until checked here.

    Raises:
        InvalidArgument: a token repeats (validation:S7), or the names or prefixes are not one-to-one
            (validation:M6).
    """
    if isinstance(hints, msgspec.UnsetType):
        return ()
    validate_unique_tokens("hints", (pair.token for pair in hints.pairs))
    validate_extension_prefixes(hints.extension_name_to_prefix)
    names = {entry.prefix: entry.name for entry in hints.extension_name_to_prefix}
    for pair in hints.pairs:
        if not 0 <= pair.token < 1 << 31:
            raise Broken("S7", f"token is {pair.token}, expected 31 bits").at("hints")
    return tuple(
        ExtensionAttribute(names[prefix_of(pair.token)], number_of(pair.token), pair.value)
        for pair in hints.pairs
        if prefix_of(pair.token) in names
    )

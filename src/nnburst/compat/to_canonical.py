"""From a version's struct to the canonical one: lossless.

NNAPI: nn::convert, nn::unvalidatedConvert.
"""

from __future__ import annotations

from typing import Any

from nnburst.compat.conversion.rules import Context, check, rules_for
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.errors import NnburstError
from nnburst.hal.model import Model
from nnburst.hal.validation.operation import Signatures


def unvalidated_convert(value: Any, level: FeatureLevel) -> Any:  # noqa: ANN401
    """The canonical form of a struct or enumeration member of version `level`.

    Raises:
        InvalidArgument: it is not one of that version, or a field is outside its range.
        GeneralFailure: validation:O23, an operand's number of consumers is wrong.
    """
    return rules_for(value).to_canonical(value, level)


def convert(
    value: Any,  # noqa: ANN401
    level: FeatureLevel,
    *,
    signatures: Signatures | None = None,
    model: Model | None = None,
) -> Any:  # noqa: ANN401
    """The canonical form of a version's method argument or result, validated.

    Args:
        value: of version `level`.
        level: the version.
        signatures: of the core operations; needed if `value` is a model.
        model: canonical; if `value` is a request, what it is checked against as well.

    Raises:
        InvalidArgument: as `unvalidated_convert`; or a rule is broken, or the type is only a part.
        GeneralFailure: validation:O23.
    """
    rules = rules_for(value)
    canonical = rules.to_canonical(value, level)
    check(canonical, rules, Context(level, signatures, model))
    return canonical


def valid(
    value: Any,  # noqa: ANN401
    level: FeatureLevel,
    *,
    signatures: Signatures | None = None,
    model: Model | None = None,
) -> bool:
    """Whether `convert` succeeds with the same arguments."""
    try:
        convert(value, level, signatures=signatures, model=model)
    except NnburstError:
        return False
    return True

"""From a canonical struct to a version's: it fails, or loses what the version cannot express.

What is lost in silence: statuses that a version lacks (GENERAL_FAILURE), entries of capabilities, the
relaxed flag before 1.1, fractions of microseconds (rounded up), padding in HIDL.

NNAPI: V1_0::utils::convert to V1_3::utils::convert, aidl::utils::convert, and their
unvalidatedConvert.
"""

from __future__ import annotations

from typing import Any

from nnburst.compat.conversion.rules import Context, check, rules_for
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.model import Model
from nnburst.hal.validation.operation import Signatures


def unvalidated_convert(value: Any, level: FeatureLevel) -> Any:  # noqa: ANN401
    """The form that a canonical struct or enumeration member has in version `level`.

    Raises:
        InvalidArgument: a part of it has none (POINTER, tokens before 1.3, numbers of too many bits).
    """
    return rules_for(value).to_hal(value, level)


def convert(
    value: Any,  # noqa: ANN401
    level: FeatureLevel,
    *,
    signatures: Signatures | None = None,
    model: Model | None = None,
) -> Any:  # noqa: ANN401
    """The form of a valid canonical method argument or result in version `level`.

    Args:
        value: canonical.
        level: the version.
        signatures: of the core operations; needed if `value` is a model.
        model: canonical; if `value` is a request, what it is checked against as well.

    Raises:
        InvalidArgument: the value is invalid, `level` cannot express it, or the type is only a part.
    """
    rules = rules_for(value)
    check(value, rules, Context(level, signatures, model))
    return rules.to_hal(value, level)

"""Checks what an executor answers, once, where it comes in: one in Python may return anything.

What can be read as it is meant, such as numpy's integers, becomes plain values. Anything else is a failure
whose text names the executor's method and what it returned, for the client and for the driver's log.
"""

from __future__ import annotations

import logging
from typing import Final, TypeVar

from nnburst.control.service import text_of
from nnburst.executor.base import Execution, Outcome
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import FAILURES, ErrorStatus
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.limits import UINT32_MAX, UINT64_MAX
from nnburst.hal.types import OutputShape
from nnburst.hal.utils import check_integer, check_integers, listed

T = TypeVar("T")

logger = logging.getLogger(__name__)

_SUCCESS: Final = ErrorStatus.NONE
#: Longest text of a value in a message.
_SHOWN: Final = 120


def checked_outcome(execution: Execution, outcome: Outcome, with_shapes: bool) -> Outcome:
    """The outcome of a run, in plain values; GENERAL_FAILURE if it is no outcome. Never raises.

    Args:
        execution: the execution that ran.
        outcome: what its `run` returned.
        with_shapes: whether the shapes of a success are used, and so checked.
    """
    # Runs with each execution that returns to Python: less than 0.2 µs without shapes.
    if type(outcome) is Outcome and outcome.status is _SUCCESS:
        device_ns, driver_ns = outcome.device_ns, outcome.driver_ns
        if (
            type(device_ns) is int
            and type(driver_ns) is int
            and 0 <= device_ns <= UINT64_MAX
            and 0 <= driver_ns <= UINT64_MAX
            and (not with_shapes or _are_plain(outcome.output_shapes))
        ):
            return outcome
    try:
        return _plain_outcome(outcome)
    except Exception as error:
        text = _text(f"{type(execution).__name__}.run", outcome, text_of(error))
        logger.error("an execution is answered with GENERAL_FAILURE: %s", text)  # noqa: TRY400
        return Outcome(ErrorStatus.GENERAL_FAILURE, (), text)


def _are_plain(shapes: tuple[OutputShape, ...]) -> bool:
    if type(shapes) is not tuple:
        return False
    for shape in shapes:
        if type(shape) is not OutputShape or type(shape.is_sufficient) is not bool:
            return False
        for extent in shape.dimensions:
            if type(extent) is not int or not 0 <= extent <= UINT32_MAX:
                return False
    return True


def _plain_outcome(outcome: object) -> Outcome:
    if not isinstance(outcome, Outcome):
        raise GeneralFailure("expected an Outcome")
    if outcome.status != _SUCCESS and outcome.status not in FAILURES:
        raise GeneralFailure("expected a status that an Outcome may have")
    shapes = listed("output_shapes", outcome.output_shapes)
    return Outcome(
        ErrorStatus(outcome.status),
        tuple(_plain_shape(f"output_shapes[{at}]", shape) for at, shape in enumerate(shapes)),
        str(outcome.message or ""),
        check_integer("device_ns", outcome.device_ns, 0, UINT64_MAX),
        check_integer("driver_ns", outcome.driver_ns, 0, UINT64_MAX),
    )


def _plain_shape(name: str, shape: object) -> OutputShape:
    if not isinstance(shape, OutputShape):
        raise GeneralFailure(f"{name}: expected an OutputShape")
    return OutputShape(
        check_integers(f"{name}.dimensions", shape.dimensions, 0, UINT32_MAX),
        _plain_bool(f"{name}.is_sufficient", shape.is_sufficient),
    )


def checked_support(executor: object, method: str, found: object, count: int) -> list[bool]:
    """The answers of an executor for each operation of a model, in plain values.

    Args:
        executor: the executor.
        method: name of its method that returned it.
        found: what the method returned.
        count: number of operations.

    Raises:
        GeneralFailure: it is no truth value for each operation.
    """
    try:
        answers = [_plain_bool("", answer) for answer in found]  # type: ignore[attr-defined]
    except Exception:
        answers = []
    if len(answers) != count:
        expected = f"expected a bool for each of {count} operations"
        raise _failure(f"{type(executor).__name__}.{method}", found, expected)
    return answers


def checked_object(maker: object, method: str, made: T, expected: str, needed: str) -> T:
    """The object that a method of an executor made.

    Args:
        maker: has the method.
        method: name of the method.
        made: what the method returned.
        expected: what it should be, for the message.
        needed: the method of the object without which it cannot be that.

    Raises:
        GeneralFailure: it has no such method.
    """
    if not callable(getattr(made, needed, None)):
        raise _failure(f"{type(maker).__name__}.{method}", made, f"expected {expected}")
    return made


def _plain_bool(name: str, found: object) -> bool:
    # numpy's own are looked for last: a driver whose executor returns none may not have imported it.
    if isinstance(found, bool):
        return found
    if isinstance(found, int | np.bool_ | np.integer) and found in (0, 1):
        return bool(found)
    raise GeneralFailure(f"{name}: expected a bool")


def _failure(what: str, found: object, reason: str) -> GeneralFailure:
    text = _text(what, found, reason)
    logger.error("a call is answered with GENERAL_FAILURE: %s", text)
    return GeneralFailure(text)


def _text(what: str, found: object, reason: str) -> str:
    try:
        shown = repr(found)
    except Exception:
        shown = f"a {type(found).__name__}"
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}…"
    return f"{what} returned {shown}: {reason}"

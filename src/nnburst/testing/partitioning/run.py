"""Making the plan of each case anew and comparing every field that the case expects."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

from nnburst.hal.enums import ExecutionPreference, OperandType, ResultCode, operation_name
from nnburst.hal.errors import NnburstError, error_for_code
from nnburst.runtime.planning.models.finish import finish
from nnburst.runtime.planning.models.finished_model import FinishedModel
from nnburst.runtime.planning.plan import Part, PartitioningMode, Plan
from nnburst.runtime.planning.planner import Planner
from nnburst.testing.conformance.campaign import Result
from nnburst.testing.partitioning.cases import CaseDevice, PartitioningCase, case_model, read_cases
from nnburst.testing.partitioning.described import described
from nnburst.testing.partitioning.device import CpuStandIn, MadeUpDevice

#: Name of the suite.
SUITE: Final = "partitioning"


def run_partitioning(path: Path, pattern: str = "", operation: str = "") -> list[Result]:
    """Run the cases of a file.

    Args:
        path: the file.
        pattern: regular expression searched in the names; empty for all.
        operation: only cases with it; empty for all.

    Raises:
        InvalidArgument: it is not a file of expected plans.
    """
    results = []
    for case in read_cases(path):
        kinds = tuple(sorted({operation_name(o[0]) for m in case.models for o in m.operations}))
        if re.search(pattern, case.name) and (not operation or operation in kinds):
            reason = difference(case)
            main = case.models[0]
            first_output = OperandType(main.operands[main.outputs[0]].type).name
            outcome = "failed" if reason else "passed"
            results.append(Result(case.name, SUITE, outcome, reason, kinds, first_output))
    return results


def difference(case: PartitioningCase) -> str:
    """The first field of a case's plan that is not as expected; empty if all are."""
    try:
        found = plan_of(case)
    except Exception as error:
        return f"crashed with {type(error).__name__}: {error}"
    for field, value in {"fell_back": False, **case.expected}.items():
        if found.get(field) != value:
            why = found.get("message", "no error")
            return f"{field} is {found.get(field, 'missing')}, expected {value} ({why})"
    return ""


def plan_of(case: PartitioningCase) -> dict[str, Any]:
    """The plan of a case, field by field in the words of the file."""
    source = finish(case_model(case.models), relaxed=[model.relaxed for model in case.models])
    orders = [list(order) for order in source.run_orders]
    try:
        fields = _planned(case, source)
    except NnburstError as error:
        fields = {"result": error.code.name, "kind": "ERROR", "message": str(error)}
    return {"fell_back": False, "run_order": orders, **fields}


def _planned(case: PartitioningCase, source: FinishedModel) -> dict[str, Any]:
    devices = [
        MadeUpDevice(device) if isinstance(device, CaseDevice) else CpuStandIn()
        for device in case.devices
    ]

    def prepare(part: Part) -> None:
        refusal = devices[part.device].refusal(part.model)
        if refusal is not None:
            raise refusal

    def review(plan: Plan) -> None:
        del plan
        if case.simulate_failure:
            raise error_for_code(
                ResultCode[case.simulate_failure], "a failure that the case asks for"
            )

    planner = Planner(
        source,
        devices,
        prepare=prepare,
        release=lambda _: None,
        preference=ExecutionPreference.LOW_POWER,
        review=review,
    )
    planned = planner.plan(PartitioningMode(case.partitioning))
    return {
        "result": ResultCode.NO_ERROR.name,
        "fell_back": planned.fell_back,
        **described(planned.plan, source),
    }

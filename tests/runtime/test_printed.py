"""Objects are printed with the facts by which they differ."""

from __future__ import annotations

import numpy as np

import nnburst
from nnburst import OperandType, OperationType, fmq, runtime
from nnburst.control.fences import create_fence


def doubling() -> nnburst.ModelBuilder:
    builder = nnburst.ModelBuilder()
    x = builder.input(OperandType.TENSOR_FLOAT32, (2,))
    y = builder.output(OperandType.TENSOR_FLOAT32, (2,))
    builder.operation(OperationType.ADD, [x, x, builder.scalar(0)], [y])
    return builder


def test_plan_and_its_burst_are_printed_with_their_devices() -> None:
    assert repr(doubling()) == "<nnburst ModelBuilder: 3 operands, 1 operations>"
    with nnburst.compile(doubling().build(), ["nnapi-reference"]) as compiled:
        assert repr(compiled.plan) == "<nnburst.PlanView: 1 step on nnapi-reference>"
        with compiled.open_burst() as burst:
            assert repr(burst) == "<nnburst.Burst on nnapi-reference: open>"
            bound = burst.bind()
            assert repr(bound) == "<nnburst.BoundRequest of 1 inputs and 1 outputs: open>"
            submitted = bound.submit()
            submitted.result()
            assert repr(submitted) == "<nnburst.SubmittedRequest: settled>"
        assert "closed" in repr(burst)
        assert "closed" in repr(bound)


def test_objects_of_nnapi_are_printed_with_their_state() -> None:
    model = runtime.Model.of(doubling().build())
    assert repr(model) == "<nnburst.runtime.Model: 3 operands, 1 operations, finished>"
    with runtime.Manager([]) as manager:
        assert repr(manager) == "<nnburst.runtime.Manager: nnapi-reference>"
        with runtime.Compilation(model, manager=manager) as compilation:
            line = "<nnburst.runtime.Compilation: for nnapi-reference, {}>"
            assert repr(compilation) == line.format("not finished")
            compilation.finish()
            assert repr(compilation) == line.format("finished")
            with compilation.execution() as execution, compilation.burst() as burst:
                assert repr(burst) == "<nnburst.runtime.Burst: open>"
                assert repr(execution) == "<nnburst.runtime.Execution: in preparation>"
                execution.set_input(0, np.ones(2, np.float32))
                execution.set_output(0, np.ones(2, np.float32))
                with execution.start() as event:
                    event.wait()
                    assert repr(event) == "<nnburst.runtime.Event: NO_ERROR>"
            assert repr(execution) == "<nnburst.runtime.Execution: closed>"
    assert repr(runtime.MemoryDesc()) == "<nnburst.runtime.MemoryDesc: 0 roles, not finished>"


def test_queues_and_fences_are_printed_with_their_size_and_state() -> None:
    numbers = fmq.MessageQueue.create(np.float32, 16)
    assert repr(numbers) == "<nnburst.fmq.MessageQueue of 16 elements of float32: open>"
    assert repr(numbers.event_flag) == "<nnburst.fmq.EventFlag of a synchronized queue>"
    numbers.close()
    assert repr(numbers).endswith(": closed>")
    assert repr(numbers.memories[0]).endswith(" bytes, closed>")
    with fmq.Queue(64) as objects:
        inner = "<nnburst.fmq.MessageQueue of 64 bytes of messages: open>"
        assert repr(objects) == f"<nnburst.fmq.Queue over {inner}>"
    fence, signaller = create_fence()
    with fence:
        assert repr(signaller) == "<nnburst Signaller: open>"
        signaller.close()
    assert repr(signaller) == "<nnburst Signaller: used or closed>"

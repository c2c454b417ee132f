"""Opens networks that a service serves by name; the client sends no model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy.typing as npt

from nnburst.client.arguments import Parameter
from nnburst.client.execution.prepared import Prepared
from nnburst.client.prepared_model import PreparedModel
from nnburst.client.session.handshake import Session
from nnburst.control.channel import Fds
from nnburst.control.connection import RemoteObject
from nnburst.control.messages import (
    GetServedModels,
    OpenedServedModel,
    OpenServedModel,
    ServedModels,
    ServedState,
)
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.enums import ExecutionPreference, Priority
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Model, Subgraph


class ServedName(NamedTuple):
    """The name and version of a served network."""

    name: str
    version: int


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A variable of a served network, for `open_burst(states=…)`.

    Attributes:
        name: of the variable.
        input_index: position among the model's inputs.
        output_index: position among the model's outputs.
        initial: value before the first execution; the input's shape and dtype, read-only.
    """

    name: str
    input_index: int
    output_index: int
    initial: npt.NDArray[Any]


class ServedModel(PreparedModel):
    """A prepared model that its service keeps. Made by `Device.model`. Thread-safe, and a context manager.

    Its `model` has only the network's inputs and outputs.

    Attributes:
        name: the name under which it is served.
        version: the version under which it is served.
        input_names: the name of each input, states included; empty strings if the file has none.
        output_names: the same for outputs.
        states: its variables, for `open_burst(states=…)`.
    """

    def __init__(self, session: Session, opened: OpenedServedModel, fds: Fds) -> None:
        """Use `Device.model`."""
        inputs = tuple(argument.operand for argument in opened.inputs)
        outputs = tuple(argument.operand for argument in opened.outputs)
        indexes = range(len(inputs) + len(outputs))
        main = Subgraph(
            (*inputs, *outputs), (), tuple(indexes[: len(inputs)]), tuple(indexes[len(inputs) :])
        )
        model = Model(main, extension_name_to_prefix=opened.extension_name_to_prefix)
        note = session.own_bursts.note_priority(Priority.MEDIUM)
        preference = ExecutionPreference.FAST_SINGLE_ANSWER
        prepared = Prepared(session, opened.handle, model, preference, note)
        super().__init__(prepared, opened.fields.get("num_threads", 1))
        self._has_slots = bool(opened.fields.get("has_slots", 0))
        self.name, self.version = opened.name, opened.version
        self.input_names = tuple(argument.name for argument in opened.inputs)
        self.output_names = tuple(argument.name for argument in opened.outputs)
        self.states = _states(opened.states, prepared.inputs, fds) if opened.states else ()


def _states(
    states: tuple[ServedState, ...], inputs: list[Parameter], fds: Fds
) -> tuple[Variable, ...]:
    """Read the variables; their values lie one after the other in the only descriptor."""
    with SharedMemory.adopt(fds.take(0)) as memory:
        values = memory.map(writable=False)
    found, offset = [], 0
    for state in states:
        if state.input_index >= len(inputs) or not inputs[state.input_index].known:
            raise GeneralFailure(
                f"the driver describes state {state.name!r} as an input that is not there"
            )
        parameter = inputs[state.input_index]
        end = offset + parameter.size
        if end > len(values):
            raise GeneralFailure("the driver's values of states are too short")
        # A copy: a forked child does not map the descriptor's memory.
        initial = values[offset:end].view(parameter.dtype).reshape(parameter.dimensions).copy()
        initial.flags.writeable = False
        found.append(Variable(state.name, state.input_index, state.output_index, initial))
        offset = end
    return tuple(found)


def served_models(session: Session, timeout: float) -> list[ServedName]:
    """List the networks of a service; see `Device.models`."""
    answer, _ = session.connection.call(GetServedModels(), ServedModels, timeout=timeout)
    return [ServedName(served.name, served.version) for served in answer.models]


class NetworkOpener:
    """Opens one network of a service, and the same one again after the service was restarted."""

    def __init__(self, name: str, version: int) -> None:
        """Open this version the first time; 0 is the newest."""
        self._name = name
        self._version = version
        self._signature: object = None

    def open(self, session: Session, timeout: float) -> ServedModel:
        """Open the network; see `Device.model`. Later calls open the version that the first one has opened.

        Raises:
            GeneralFailure: this version has other inputs, outputs or states than before.
        """
        message = OpenServedModel(self._name, self._version)
        remote = RemoteObject(session.connection)
        opened, fds = session.connection.call(
            message, OpenedServedModel, timeout=timeout, remote=remote
        )
        with fds:
            signature = opened.inputs, opened.outputs, opened.states
            if self._signature not in (None, signature):
                raise GeneralFailure(
                    f"{self._name}@{self._version} has other inputs, outputs or states than before"
                )
            model = ServedModel(session, opened, fds)
        remote.detach()  # it is the model's
        self._version, self._signature = opened.version, signature
        return model

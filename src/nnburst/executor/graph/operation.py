"""Defines operations: a declaration that all of nnburst reads, and a kernel for the reference executor.

    declare(signature, shape=rule)             # executor/operations: what it accepts, what shapes it gives

    @kernel(OperationType.NEG)                 # executor/reference/operations: how it is computed
    def negate(node: Node) -> Run:             # bind: look at types, shapes, CONTROL values; allocate scratch
        x, y = node.tensor("input").array, node.output().array
        def run() -> None:                     # run: no allocation, no Python work per element
            np.negative(x, out=y)
        return run

Validation, the framework and LiteRT need declarations alone; kernels are loaded with the reference executor.
A shape is static if input shapes and CONTROL values determine it. A kernel is bound once per request if all
shapes are static, and before every run otherwise. Operations whose output shape depends on data
(BOX_WITH_NMS_LIMIT) declare `shape=None` and their kernels return the outputs instead:
`def kernel(node) -> list[Array]` (a Tensor instead of an array if quantisation is forced).

Weights that a kernel rearranges are rearranged once per prepared model if they are constants:

    if node.is_constant("filter"):
        filter = node.constant("transposed", lambda: rearrange(node.tensor("filter").array))

float16: unless `half=True`, the evaluator hands a kernel float32 copies of its float16 inputs (tensors
and scalars) and float32 memory for its float16 outputs, typed as their float32 counterparts, and
rounds once after the run. A kernel thus implements float32 only.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from nnburst.executor.graph.tensor import Array, Tensor, TensorType
from nnburst.hal import late_numpy as np
from nnburst.hal.enums import ErrorStatus, OperationType
from nnburst.hal.errors import NnburstError
from nnburst.hal.signature import Match, Signature

if TYPE_CHECKING:
    import numpy.typing as npt

Run = Callable[[], None]


class OperationFailed(NnburstError):
    """An operation cannot compute these operands: GENERAL_FAILURE, or INVALID_ARGUMENT if NNAPI has that.

    Messages name the operation, the operand and the rule.
    """

    default_status = ErrorStatus.GENERAL_FAILURE


@contextmanager
def named(type: OperationType) -> Iterator[None]:  # noqa: A002 - NNAPI's word
    """Add the operation's name to error messages of arithmetic that several operations share."""
    try:
        yield
    except OperationFailed as failure:
        name = f"{type.name}: "
        if str(failure).startswith(name):
            raise
        raise OperationFailed(f"{name}{failure}", status=failure.status) from failure


V = TypeVar("V")


class Evaluation(Protocol):
    """The interface of the running evaluator that control flow uses."""

    @property
    def loop_timeout_ns(self) -> int:
        """The time that a WHILE may loop."""

    def reaches(self, caller: int, called: int) -> bool:
        """Whether a run of referenced subgraph `caller` may run subgraph `called`, which may be the same."""

    def call(
        self,
        subgraph: int,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[TensorType] | None = None,
    ) -> list[Tensor]:
        """Run referenced subgraph `subgraph` and return its outputs in private memory.

        The returned tensors keep their values until the subgraph runs again. `outputs` are the declared
        outputs; None for those of the subgraph itself.
        """


def uninitialised(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Allocate memory that no other array shares."""
    return np.empty(shape, dtype)


class Binding(msgspec.Struct):
    """All that a node is bound with, except its operands.

    Attributes:
        scratch: allocator of memory that may be used until the next operation runs.
        constants: positions of the inputs that are constants of the model.
        cache: values that the operation keeps with the prepared model.
        evaluation: the running evaluator (control flow only).
    """

    scratch: Callable[[tuple[int, ...], np.dtype[Any]], Array] = uninitialised
    constants: frozenset[int] = frozenset()
    cache: dict[Hashable, Any] = msgspec.field(default_factory=dict)
    evaluation: Evaluation | None = None


class Node:
    """One operation with concrete operands, as shape rules and kernels see it.

    A shape rule may read the `array` of CONTROL inputs only, and has no outputs.
    """

    __slots__ = ("_binding", "inputs", "match", "outputs", "outputs_declared", "type")

    def __init__(
        self,
        type: OperationType,  # noqa: A002 - NNAPI's word
        match: Match,
        inputs: Sequence[Tensor | None],
        outputs: Sequence[Tensor] = (),
        outputs_declared: Sequence[TensorType] = (),
        binding: Binding | None = None,
    ) -> None:
        """See the attributes.

        Args:
            type: the operation.
            match: form and slots.
            inputs: one per input of the operation; None if omitted.
            outputs: memory for the outputs, with the types that the shape rule gave.
            outputs_declared: type, quantisation and (possibly unknown) dimensions of the output
                operands as the model declares them.
            binding: scratch memory and cache; new ones by default.
        """
        self.type = type
        self.match = match
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.outputs_declared = tuple(outputs_declared)
        self._binding = Binding() if binding is None else binding

    def find(self, name: str) -> Tensor | None:
        """The input called `name`; None if it is omitted, or the form does not have it."""
        for slot, tensor in zip(self.match.inputs, self.inputs, strict=True):
            if slot.name == name:
                return tensor
        return None

    def tensor(self, name: str) -> Tensor:
        """The input called `name`, which must not be omitted.

        Raises:
            OperationFailed: it is omitted.
        """
        found = self.find(name)
        if found is None:
            raise self.failure(f"operand '{name}' is omitted")
        return found

    def tensors(self, name: str) -> list[Tensor]:
        """All inputs of a slot that repeats; none may be omitted."""
        found = []
        for slot, tensor in zip(self.match.inputs, self.inputs, strict=True):
            if slot.name == name:
                if tensor is None:
                    raise self.failure(f"operand '{name}' is omitted")
                found.append(tensor)
        return found

    def value(self, name: str) -> Any:  # noqa: ANN401 - int, float or bool by the slot's type
        """Value of a scalar input as a Python number (bool for BOOL), or its slot's default."""
        for slot, tensor in zip(self.match.inputs, self.inputs, strict=True):
            if slot.name == name:
                if tensor is None:
                    raise self.failure(f"operand '{name}' is omitted")
                (value,) = tensor.numbers
                return bool(value) if tensor.type.name == "BOOL" else value
        for slot in self.match.form.inputs:
            if slot.name == name:
                return slot.default
        raise KeyError(name)

    def output(self, index: int = 0) -> Tensor:
        """Memory of an output (kernels only)."""
        return self.outputs[index]

    def declared(self, index: int = 0) -> TensorType:
        """An output operand as the model declares it (its dimensions may be unknown)."""
        return self.outputs_declared[index]

    def like_declared(self, dimensions: Sequence[int], index: int = 0) -> TensorType:
        """The declared type and quantisation with computed dimensions, as most shape rules return them."""
        meta = self.outputs_declared[index]
        return TensorType(
            meta.type,
            tuple(int(d) for d in dimensions),
            meta.scale,
            meta.zero_point,
            meta.extra_params,
        )

    def scratch(self, shape: Sequence[int], dtype: npt.DTypeLike) -> Array:
        """Uninitialised memory for intermediate results of one run.

        Other operations overwrite this memory between two runs: a kernel writes all that it relies on (the
        border of a padded copy, for example) in `run`, not at binding.
        """
        return self._binding.scratch(tuple(shape), np.dtype(dtype))

    def is_constant(self, name: str) -> bool:
        """Whether the input called `name` is given, as a constant of the model."""
        return any(
            slot.name == name and position in self._binding.constants
            for position, slot in enumerate(self.match.inputs)
        )

    def constant(self, key: Hashable, build: Callable[[], V]) -> V:
        """The result of `build`, computed once per prepared model and shared by all bindings.

        `build` may depend only on types, on constant operands (`is_constant`) and on `key`. Its
        result must not be changed. Threads may build at once; one result is kept.
        """
        cache = self._binding.cache
        if key not in cache:
            cache.setdefault(key, build())
        value: V = cache[key]
        return value

    @property
    def evaluation(self) -> Evaluation:
        """The running evaluator, which runs subgraphs (kernels of control flow only)."""
        if self._binding.evaluation is None:
            raise self.failure("control flow runs only inside an evaluator")
        return self._binding.evaluation

    def failure(
        self, message: str, status: ErrorStatus = ErrorStatus.GENERAL_FAILURE
    ) -> OperationFailed:
        """The exception to raise if the operands break a rule at execution."""
        return OperationFailed(f"{self.type.name}: {message}", status=status)

    def require(self, condition: bool, message: str) -> None:
        """Raise OperationFailed(message) unless `condition`."""
        if not condition:
            raise self.failure(message)


ShapeRule = Callable[[Node], Sequence[TensorType]]
Kernel = Callable[[Node], Any]
K = TypeVar("K", bound=Kernel)


def no_kernel(node: Node) -> Any:  # noqa: ANN401 - like every kernel
    """Stand in as kernel of an operation while the reference executor is not loaded."""
    raise node.failure("no kernel is loaded")


class OperationDefinition(msgspec.Struct, frozen=True):
    """One operation.

    Attributes:
        signature: the operands that it accepts.
        shape: types of the outputs from the inputs' types and CONTROL values; None if they
            depend on data (the kernel then returns the output arrays and their dimensions decide).
        kernel: binds the operation to its operands.
        half: the kernel handles float16 itself.
        zero_sized: inputs with an extent of 0 are accepted; otherwise they fail the execution.
        omitted_status: status of an execution that omits an operand or has a zero-sized input that the
            operation does not accept.
    """

    signature: Signature
    shape: ShapeRule | None
    kernel: Kernel = no_kernel
    half: bool = False
    zero_sized: bool = False
    omitted_status: ErrorStatus = ErrorStatus.GENERAL_FAILURE


#: Every operation: what `nnburst.executor.operations` declares, with kernels once they are loaded.
REGISTRY: Final[dict[OperationType, OperationDefinition]] = {}


def declare(
    signature: Signature,
    shape: ShapeRule | None,
    *,
    zero_sized: bool = False,
    omitted_status: ErrorStatus = ErrorStatus.GENERAL_FAILURE,
) -> None:
    """Declare an operation; see `OperationDefinition` for the arguments."""
    if signature.type in REGISTRY:
        raise ValueError(f"{signature.type.name} is declared twice")
    REGISTRY[signature.type] = OperationDefinition(
        signature, shape, zero_sized=zero_sized, omitted_status=omitted_status
    )


def kernel(
    type: OperationType,  # noqa: A002 - NNAPI's word
    *,
    half: bool = False,
) -> Callable[[K], K]:
    """Register the decorated kernel of a declared operation.

    Args:
        type: the operation.
        half: whether the kernel handles float16 itself.
    """

    def register(bind: K) -> K:
        declared = REGISTRY[type]
        if declared.kernel is not no_kernel:
            raise ValueError(f"{type.name} has a kernel: {declared.kernel.__name__}")
        REGISTRY[type] = replace(declared, kernel=bind, half=half)
        return bind

    return register

"""Starting a computation behind the events that it depends on."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from nnburst.client.execution.sync_fence import SyncFence
from nnburst.control.fences import FenceStatus
from nnburst.hal.errors import GeneralFailure, NnburstError, UnexpectedNull
from nnburst.runtime.argument import Argument, Options, Outcome
from nnburst.runtime.execution.executable import Executable
from nnburst.runtime.execution.fence_chain import FenceChain
from nnburst.runtime.execution.fenced import FencedComputation
from nnburst.runtime.objects.event import Event
from nnburst.runtime.objects.outcomes import succeeded


def check_dependencies(dependencies: Sequence[Event]) -> None:
    """Refuse a list that is None, or has an entry that is.

    Raises:
        UnexpectedNull: it is, or has.
    """
    if dependencies is None or any(event is None for event in dependencies):
        raise UnexpectedNull("dependencies: the list or an entry is None")


def fences_of(dependencies: Sequence[Event]) -> list[SyncFence]:
    """The fences of events; those without are waited for, and how they end does not matter (RT:V4).

    Raises:
        GeneralFailure: a fence is in the error state.
    """
    for event in dependencies:
        if event.fence is None:
            with contextlib.suppress(NnburstError):
                event.wait()
    fences = [event.fence for event in dependencies if event.fence is not None]
    if any(fence.status == FenceStatus.ERROR for fence in fences):
        raise GeneralFailure("dependencies: a fence is in the error state")
    return fences


def start_fenced(
    executable: Executable,
    arguments: tuple[list[Argument], list[Argument]],
    options: Options,
    chain: FenceChain,
    complete: Callable[[Outcome], Outcome],
) -> Event:
    """Begin all steps behind a chain's dependencies.

    Args:
        executable: revived.
        arguments: inputs and outputs; drivers find them where they are.
        options: how.
        chain: with nothing begun yet.
        complete: is given what came of it, once, and returns that as the application gets it: in this call
            if there is no fence to wait for, else in `Event.wait`.

    Raises:
        NnburstError: what came of it, if that is known at once.
    """
    computation = FencedComputation(executable, arguments, options, chain)
    begun = computation.begin()
    fence = computation.fence
    if fence is None:
        computation.close()
        return Event(outcome=succeeded(complete(begun)))
    return Event(
        lambda: complete(computation.conclude()), fence=fence, deadline_ns=options.deadline_ns
    )

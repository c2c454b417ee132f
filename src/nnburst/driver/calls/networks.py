"""Answers calls on networks that a client does not hand over as a model: served by name, or whole files."""

from __future__ import annotations

import os
from contextlib import ExitStack

import msgspec

from nnburst.control.channel import Fds
from nnburst.control.counts import model_id
from nnburst.control.messages import (
    GetServedModels,
    OpenServedModel,
    PrepareGraph,
    ServedModels,
)
from nnburst.control.service import Answer
from nnburst.driver.calls.registry import answers
from nnburst.driver.client_session import ClientSession
from nnburst.driver.counters import ModelCounters
from nnburst.driver.model.pools import Pool
from nnburst.driver.scheduler import Work
from nnburst.driver.served_models import describe
from nnburst.executor.base import DEFAULT_OPTIONS
from nnburst.fmq.shared_memory import SharedMemory
from nnburst.hal.errors import InvalidArgument


@answers(GetServedModels)
def get_served_models(session: ClientSession, _call: GetServedModels, _fds: Fds) -> Answer:
    """Which networks are served by name."""
    return ServedModels(session.served_models.names), Fds()


@answers(OpenServedModel)
def open_served_model(session: ClientSession, call: OpenServedModel, _fds: Fds) -> Answer:
    """Open a network that is served; it is prepared already, unless the client came before that."""
    opened = session.served_models.open(
        call.name, call.version, session.device, session.counter_page
    )
    fds = Fds() if opened.initial is None else Fds([os.dup(opened.initial.fd)])
    try:
        handle = session.objects.add(opened.prepared)
    except BaseException:
        fds.close()
        raise
    return msgspec.structs.replace(opened.description, handle=handle), fds


@answers(PrepareGraph, Work.PREPARATION)
def prepare_graph(session: ClientSession, call: PrepareGraph, fds: Fds) -> Answer:
    """Prepare a file as one operation, which the engine of the executor computes as it is."""
    from nnburst.importer.load import load_graph  # which few clients need

    if len(set(call.files)) < len(call.files):
        raise InvalidArgument(f"files: {list(call.files)}, expected different names")
    device = session.device
    with ExitStack() as stack:
        pools = []
        for index in range(len(fds)):
            pools.append(Pool(SharedMemory.adopt(fds.take(index))))
            stack.callback(pools[-1].close)
        # TRUST: the file is copied before it is read; others are when the executor takes the graph
        content = bytes(pools[0].readable)
        others = [pool.readable for pool in pools[1:]]
    network = load_graph(content, dict(zip(call.files, others, strict=True)))
    views = [pool.data for pool in network.pools]
    device.check(network.model, views)
    device.check_supported(network.model, views)
    options = msgspec.structs.replace(DEFAULT_OPTIONS, num_threads=call.num_threads)
    prepared = device.prepare_checked(network.model, views, options)
    if session.counter_page is not None:
        page = session.counter_page
        prepared.counters = ModelCounters(page, page.known(model_id(prepared.model)))
    description = describe(network, prepared, device.supported_extensions())
    handle = session.objects.add(prepared)
    return msgspec.structs.replace(description, handle=handle), Fds()

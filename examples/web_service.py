"""A web service with bursts inside: POST an array's bytes, get the scores as JSON.

    pip install 'nnburst[litert,recipes]'
    NETWORK=network.tflite uvicorn --factory web_service:from_environment --app-dir examples

The service starts one driver and opens some bursts on it. A request takes a burst that is free, copies its
bytes into the burst's input, and waits in the event loop; so many requests compute at once as there are
bursts. If the driver dies, the requests under way get status 503 and the next ones a new driver.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import numpy as np
from fastapi import FastAPI, HTTPException, Request

import nnburst

LANES = 2  # bursts, so executions at once
PATIENCE = 1.0  # seconds that a request may wait for a free burst, and then for its result


def from_environment() -> FastAPI:
    """The service of the network that NETWORK names, on the executor EXECUTOR."""
    network = nnburst.load(os.environ["NETWORK"])
    return service(network, os.environ.get("EXECUTOR", "litert"))


def service(model: nnburst.Model | nnburst.ImportedModel, executor: str) -> FastAPI:
    """An application whose driver lives as long as it does."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as stack:
            device = stack.enter_context(nnburst.launch(executor, recover=True))
            prepared = stack.enter_context(device.prepare(model))
            free: asyncio.Queue[Any] = asyncio.Queue()
            for _ in range(LANES):
                burst = stack.enter_context(prepared.open_burst())
                free.put_nowait(burst.bind())
            app.state.free, app.state.device = free, device
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/infer")
    async def infer(request: Request) -> dict[str, Any]:
        free: asyncio.Queue[Any] = app.state.free
        body = await request.body()
        try:
            bound = await asyncio.wait_for(free.get(), PATIENCE)
        except TimeoutError:
            raise HTTPException(503, "every burst is busy", {"Retry-After": "1"}) from None
        try:
            into = bound.inputs[0]
            if len(body) != into.nbytes:
                text = f"the body has {len(body)} bytes, the input {into.nbytes}"
                raise HTTPException(422, f"{text} ({into.dtype} {into.shape})")
            into[...] = np.frombuffer(body, into.dtype).reshape(into.shape)
            await bound.run_async(timeout=PATIENCE)
            return {"outputs": [array.tolist() for array in bound.outputs]}
        except (nnburst.DeadObject, nnburst.DeviceUnavailable) as error:
            raise HTTPException(503, str(error), {"Retry-After": "1"}) from None
        except nnburst.MissedDeadline as error:
            raise HTTPException(504, str(error)) from None
        finally:
            free.put_nowait(bound)

    @app.get("/health")
    async def health() -> dict[str, Any]:
        device: nnburst.Device = app.state.device
        return {"driver_alive": device.is_alive, "recoveries": device.recoveries}

    return app

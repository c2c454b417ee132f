"""Fixtures for the plugin in this process's onnxruntime, and for a service that sessions use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from client.service import Service
from nnburst import onnxruntime as provider
from nnburst.capi import installed

#: Makes a session of a network's bytes whose nodes run on the provider.
MakeSession = Callable[..., Any]


@pytest.fixture(scope="session")
def engine() -> Any:
    """The package onnxruntime; skips without it, or if it or this nnburst has no plugins."""
    ort = pytest.importorskip("onnxruntime")
    if not hasattr(ort, "register_execution_provider_library"):
        pytest.skip(f"onnxruntime {ort.__version__} has no plugin execution providers")
    if not installed.PROVIDER_LIBRARY.is_file():
        pytest.skip("this nnburst was built without the provider")
    ort.set_default_logger_severity(4)
    return ort


@pytest.fixture(scope="session")
def devices(engine: Any) -> list[Any]:
    """The provider's devices in this process, where it stays registered."""
    engine.register_execution_provider_library("nnburst", provider.get_library_path())
    return [d for d in engine.get_ep_devices() if d.ep_name == provider.get_ep_name()]


@pytest.fixture(scope="session")
def service() -> Iterator[Service]:
    """A service that computes whole files; tests must not kill its processes."""
    pytest.importorskip("onnxruntime")
    with Service(executor="onnxruntime") as service:
        yield service


@pytest.fixture
def session(engine: Any, devices: list[Any], service: Service) -> MakeSession:
    """Makes sessions; options of the provider are keyword arguments."""

    def make(network: bytes, **options: str) -> Any:
        if not options.keys() & {"device", "executor"}:
            options["device"] = service.address
        given = engine.SessionOptions()
        given.intra_op_num_threads = 1
        given.log_severity_level = 4
        given.add_provider_for_devices(devices, {"num_threads": "1", **options})
        return engine.InferenceSession(network, given, enable_fallback=0)

    return make

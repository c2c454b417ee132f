"""Plugin execution providers behind the executor onnxruntime, by this package's own plugin."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Iterator

import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra 'onnxruntime')")

import nnburst
from client.service import Service
from executor.onnxruntime.networks import computed, image, network
from nnburst import onnxruntime as plugin
from nnburst.capi.installed import PROVIDER_LIBRARY
from nnburst.executor.built_in import onnxruntime
from nnburst.executor.onnxruntime.native import library
from nnburst.hal.enums import DeviceType
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument

LIBRARY = str(PROVIDER_LIBRARY)
VERSION = library().version
HAS_PLUGINS = tuple(map(int, VERSION.split(".")[:2])) >= (1, 23)

pytestmark = pytest.mark.skipif(not PROVIDER_LIBRARY.is_file(), reason="built without the provider")
needs_plugins = pytest.mark.skipif(
    not HAS_PLUGINS, reason=f"onnxruntime {VERSION}: plugins need 1.23 or newer"
)


def because(reason: str) -> str:
    """The reason why a library is refused: itself, or the engine's version."""
    return reason if HAS_PLUGINS else "plugins need version 1.23 or a newer one"


@pytest.fixture
def service() -> Iterator[Service]:
    """The service that the plugin hands its graphs to; it computes nothing, which shows that it was used."""
    with Service(executor="executor.onnxruntime.blank:Blank") as service:
        yield service


@needs_plugins
def test_networks_run_on_the_first_device_of_the_provider_that_the_service_names(
    service: Service,
) -> None:
    x = image()
    options = {
        "provider_library": LIBRARY,
        "provider": plugin.get_ep_name(),
        "device": service.address,
        "num_threads": "1",
    }
    with (
        nnburst.launch(
            "onnxruntime",
            options=options,
            env={"NNBURST_SANDBOX": "0"},  # the plugin opens a socket
        ) as device,
        device.prepare(network()) as prepared,
        prepared.open_burst() as burst,
    ):
        assert device.version_string.endswith(plugin.get_ep_name())
        assert device.type is DeviceType.OTHER  # the processor, but nothing is measured
        assert computed(onnxruntime(), network(), [x])[0].any()
        assert not burst.execute([x]).outputs[0].any()


@needs_plugins
def test_an_option_that_the_provider_refuses_is_named(service: Service) -> None:
    options = {
        "provider_library": LIBRARY,
        "provider": plugin.get_ep_name(),
        "device": service.address,
        "colour": "red",
    }
    imported = nnburst.load(identity(), as_graph=True)
    with (
        nnburst.launch("onnxruntime", options=options, env={"NNBURST_SANDBOX": "0"}) as device,
        pytest.raises((DeviceUnavailable, InvalidArgument), match="colour"),
    ):
        device.prepare(imported)


def identity() -> bytes:
    """A graph of one node, by the lowering that has it."""
    from nnburst.executor.graph.tensor import TensorType
    from nnburst.executor.onnxruntime.graph import OnnxGraph
    from nnburst.hal.enums import OperandType

    graph = OnnxGraph()
    return graph.finish([graph.input(TensorType(OperandType.TENSOR_FLOAT32, (1,)))]).content


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"provider_library": LIBRARY, "provider": "Toaster"},
            DeviceUnavailable,
            f"no provider 'Toaster' by the library .*{because('there are devices of')}",
        ),
        (
            {"provider_library": "/nowhere/lib.so", "provider": "Toaster"},
            DeviceUnavailable,
            f"'/nowhere/lib.so': {because('')}",
        ),
        ({"provider": "Toaster"}, DeviceUnavailable, "no provider 'Toaster', it has .*CPU"),
        ({"provider_library": LIBRARY}, InvalidArgument, "'provider_library' without a provider"),
        ({"device_id": "1"}, InvalidArgument, "'device_id' without a provider"),
    ],
)
def test_a_provider_that_is_not_there_is_refused_by_name(
    options: dict[str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        onnxruntime(options)


def test_nothing_is_written_where_an_engine_before_1_23_has_no_argument() -> None:
    get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(lambda _: None)
    get_version = ctypes.CFUNCTYPE(ctypes.c_char_p)(lambda: b"1.22.1")
    base = (ctypes.c_void_p * 2)(
        *(ctypes.cast(f, ctypes.c_void_p).value for f in (get_api, get_version))
    )
    factories, memory = (ctypes.c_void_p * 4)(), ctypes.c_size_t(7)
    make = ctypes.CDLL(LIBRARY).CreateEpFactories
    make.restype = ctypes.c_void_p
    # Its five arguments: name, base, factories, room, count; the sixth is what a register happens to hold.
    given = b"nnburst", base, factories, ctypes.c_size_t(4), ctypes.byref(ctypes.c_size_t())
    assert make(*given, ctypes.byref(memory)) is None
    assert memory.value == 7
    assert not any(factories)


@pytest.mark.parametrize("option", ["--provider", "--provider-library"])
def test_serve_refuses_a_provider_for_another_executor(option: str) -> None:
    command = [sys.executable, "-m", "nnburst", "serve", "x", "--executor", "reference"]
    ran = subprocess.run([*command, option, "Y"], capture_output=True, text=True)
    assert ran.returncode != 0
    assert f"{option}: Y, but the executor is reference" in ran.stderr

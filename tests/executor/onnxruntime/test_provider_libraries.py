"""Plugin execution providers behind the executor onnxruntime, by this package's own plugin."""

from __future__ import annotations

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
from nnburst.hal.enums import DeviceType
from nnburst.hal.errors import DeviceUnavailable, InvalidArgument

LIBRARY = str(PROVIDER_LIBRARY)

pytestmark = pytest.mark.skipif(not PROVIDER_LIBRARY.is_file(), reason="built without the provider")


@pytest.fixture
def service() -> Iterator[Service]:
    """The service that the plugin hands its graphs to; it computes nothing, which shows that it was used."""
    with Service(executor="executor.onnxruntime.blank:Blank") as service:
        yield service


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
            "no provider 'Toaster' by the library .*there are devices of",
        ),
        (
            {"provider_library": "/nowhere/lib.so", "provider": "Toaster"},
            DeviceUnavailable,
            "'/nowhere/lib.so'",
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


@pytest.mark.parametrize("option", ["--provider", "--provider-library"])
def test_serve_refuses_a_provider_for_another_executor(option: str) -> None:
    command = [sys.executable, "-m", "nnburst", "serve", "x", "--executor", "reference"]
    ran = subprocess.run([*command, option, "Y"], capture_output=True, text=True)
    assert ran.returncode != 0
    assert f"{option}: Y, but the executor is reference" in ran.stderr

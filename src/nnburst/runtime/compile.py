"""`nnburst.compile`: a model placed on what runs here.

compiled = nnburst.compile(nnburst.load("network.tflite"))
print(compiled.plan)
y = compiled.execute([x]).outputs[0]
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from nnburst.client.compilation_cache import model_token
from nnburst.client.memory.arguments import check_timeout
from nnburst.client.memory.carried_pools import CarriesPools, bare_model
from nnburst.client.memory.memory import Memory as Pool
from nnburst.hal.enums import NDK_PRIORITIES, ExecutionPreference, Priority
from nnburst.hal.errors import InvalidArgument, MissedDeadline
from nnburst.hal.model import Model as HalModel
from nnburst.hal.validation.values import validate_priority
from nnburst.runtime.compiled_model import CompiledModel
from nnburst.runtime.devices.device import Device
from nnburst.runtime.devices.manager import Manager
from nnburst.runtime.measuring.measuring import Measuring
from nnburst.runtime.memory.stores import filled_pool
from nnburst.runtime.objects.compilation import Compilation
from nnburst.runtime.objects.memory import Memory
from nnburst.runtime.objects.model import Model


def compile(  # noqa: A001 - NNAPI's word
    model: HalModel | CarriesPools,
    devices: Sequence[str | Device] | None = None,
    *,
    pools: Sequence[Pool] = (),
    preference: ExecutionPreference = ExecutionPreference.FAST_SINGLE_ANSWER,
    priority: Priority = Priority.MEDIUM,
    cache_dir: str | os.PathLike[str] | None = None,
    token: bytes | None = None,
    timeout: float = 60.0,
    placement: str = "declared",
    measuring: Measuring | None = None,
    manager: Manager | None = None,
) -> CompiledModel:
    """Place a model on devices and have its parts prepared.

    Args:
        model: what `nnburst.load` returns, or a model.
        devices: those to use, each by its name or as it is; then there is no fallback. By default every
            driver of this user that runs, the installed engines, and the CPU, which also stands in for what
            fails.
        pools: the pools that the constants of a bare model lie in, in the model's order.
        preference: what to optimise for.
        priority: among the models of this program.
        cache_dir: directory in which devices keep what they compile, if they can; made (mode 0700) if it is
            missing.
        token: 32 bytes that name the model in `cache_dir`; by default a hash of its content.
        timeout: seconds that placing and preparing may take.
        placement: "declared" places by the costs that devices report; "measured" times them on this model and
            takes the plan of least latency (`CompiledModel.placement_report` has what it found).
        measuring: for "measured": the seconds that it may take, a function for its progress, and where its
            figures are kept. By default at most 30 s.
        manager: the manager whose devices are used; that of this process unless given.

    Returns:
        The compiled model, which the caller closes: its plan, and ways to execute it.

    Raises:
        InvalidArgument: the model is not valid, a device is unknown, no device can run an operation, or
            another argument makes no sense.
        MissedDeadline: it took longer than `timeout`.
        NnburstError: what a device of an explicit list answers.
        OSError: `cache_dir` cannot be made.
    """
    check_timeout(timeout)
    known = Manager.of_process() if manager is None else manager
    listed = None if devices is None else [_device(known, device) for device in devices]
    compilation = Compilation(_framework_model(model, pools), listed, manager=known)
    compilation.preference = preference
    compilation.priority = NDK_PRIORITIES[validate_priority(priority)]
    if cache_dir is not None:
        folder = os.fspath(cache_dir)
        os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        built = compilation.model._built_model
        contents = [memory.bytes for memory in built.memories]
        compilation.set_caching(folder, token or model_token(built.model, contents))
    if placement not in ("declared", "measured"):
        raise InvalidArgument(f"placement: {placement!r}, expected 'declared' or 'measured'")
    if placement == "measured":
        compilation.place_by_measurement(measuring)
    elif measuring is not None:
        raise InvalidArgument("measuring: given, but placement is 'declared'")
    compilation.limit(timeout)
    try:
        compilation.finish()
    except MissedDeadline as error:
        raise MissedDeadline(f"timeout: {timeout:g} s: {error}", status=error.status) from error
    return CompiledModel(compilation)


def _device(manager: Manager, device: str | Device) -> Device:
    if isinstance(device, str):
        return manager.device(device)
    if not manager._has(device):
        raise InvalidArgument(f"devices: {device!r} is not a device of this manager")
    return device


def _framework_model(model: HalModel | CarriesPools, pools: Sequence[Pool]) -> Model:
    bare = bare_model(model)
    if isinstance(model, HalModel):
        return Model.of(bare, [Memory._of_pool(pool) for pool in pools])
    if pools:
        raise InvalidArgument(f"pools: {len(pools)} given, the model brings its own")
    carried = [filled_pool(np.ascontiguousarray(content).data) for content in model.pools]
    return Model.of(bare, [Memory._of_pool(pool) for pool in carried])

"""Killing the driver that the C interface computes on."""

from __future__ import annotations

import os
import signal

from nnburst.runtime import Manager
from nnburst.runtime.devices.driver_device import DriverDevice


def kill_driver() -> None:
    device = Manager.of_process().devices[0]
    assert isinstance(device, DriverDevice)
    os.kill(device.pid, signal.SIGKILL)

"""Has an executor whose packed weights are the pool's bytes; the first byte chooses an additional deed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import IntEnum
from pathlib import Path

from nnburst.executor.base import Bytes, Prepared, PrepareOptions
from nnburst.executor.null import NullExecutor
from nnburst.hal.errors import GeneralFailure
from nnburst.hal.model import Model


class Deed(IntEnum):
    """First byte of the pool."""

    NOTHING = 0
    CRASH = 1
    NO_MEMORY_FILE = 2
    REFUSE = 3
    LIST_DESCRIPTORS = 4
    NOTHING_TO_SHARE = 5


class Packer(NullExecutor):
    """Packs without computing."""

    def pack(
        self, model: Model, pools: Sequence[Bytes], options: PrepareOptions
    ) -> tuple[int, ...]:
        del model, options
        deed = Deed(int(pools[0][0]))
        if deed is Deed.CRASH:
            os.abort()
        if deed is Deed.NO_MEMORY_FILE:
            return os.pipe()
        if deed is Deed.REFUSE:
            raise GeneralFailure("as it was asked to")
        if deed is Deed.NOTHING_TO_SHARE:
            return ()
        content = bytes(pools[0])
        if deed is Deed.LIST_DESCRIPTORS:
            links = sorted(Path("/proc/self/fd").iterdir(), key=lambda link: int(link.name))
            kinds = [
                f"{os.readlink(link)} {link.stat().st_ino}"
                for link in links
                if int(link.name) > 2 and link.exists()
            ]
            content = "\n".join(kinds).encode()
        fd = os.memfd_create("weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.write(fd, content)
        return (fd,)

    def prepare_packed(
        self, model: Model, files: Sequence[int], options: PrepareOptions
    ) -> Prepared:
        del files
        return self.prepare(model, [], options)

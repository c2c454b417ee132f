"""Starts a driver: `python -m nnburst.driver`."""

from __future__ import annotations

import gc
import os
import sys

# Numeric libraries start their threads while numpy is being imported, and a supervisor must have
# exactly one thread when it forks; a worker's executions are short and come one after another.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"

if __name__ == "__main__":
    # Imports make objects that stay; collecting garbage among them would take a tenth of the start. The
    # supervisor and each worker switch collections on again.
    gc.disable()
    from nnburst.driver.service.main import main

    sys.exit(main())

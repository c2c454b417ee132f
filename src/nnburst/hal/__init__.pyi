from nnburst.client.compilation_cache import CacheFiles as CacheFiles
from nnburst.client.execution.aidl_burst import AidlBurst as AidlBurst
from nnburst.client.execution.fenced_execution import FencedExecution as FencedExecution
from nnburst.client.execution.sync_fence import SyncFence as SyncFence
from nnburst.client.hal import ReusableExecution as ReusableExecution
from nnburst.client.hal import create_reusable_execution as create_reusable_execution
from nnburst.client.hal import execute_fenced as execute_fenced
from nnburst.client.hal import open_aidl_burst as open_aidl_burst

__all__ = [
    "AidlBurst",
    "CacheFiles",
    "FencedExecution",
    "ReusableExecution",
    "SyncFence",
    "create_reusable_execution",
    "execute_fenced",
    "open_aidl_burst",
]

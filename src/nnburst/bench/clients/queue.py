"""A queue before some servers, simulated: what the same requests would take if only computing took time."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

Nanoseconds = npt.NDArray[np.int64]


def simulate_queue(
    arrivals: Nanoseconds, clients: Nanoseconds, services: Nanoseconds, servers: int
) -> Nanoseconds:
    """What each request takes from when it comes until it is served.

    Requests of one client are served one after the other; a free server takes the one that waits longest.

    Args:
        arrivals: when requests come, in any order.
        clients: whose they are: numbers from 0 on.
        services: how long a server needs for each.
        servers: how many there are, at least 1.

    Returns:
        Nanoseconds for each request, in the order of `arrivals`.
    """
    free = [0] * servers
    client_free = [0] * (int(clients.max(initial=-1)) + 1)
    waiting = [(int(arrivals[i]), i) for i in np.argsort(arrivals, kind="stable")]
    heapq.heapify(waiting)
    took = np.zeros(len(arrivals), np.int64)
    while waiting:
        ready, index = heapq.heappop(waiting)
        client = int(clients[index])
        if client_free[client] > ready:  # its client's request before is not served yet
            heapq.heappush(waiting, (client_free[client], index))
            continue
        done = max(ready, heapq.heappop(free)) + int(services[index])
        heapq.heappush(free, done)
        client_free[client] = done
        took[index] = done - int(arrivals[index])
    return took


def jain_index(shares: npt.NDArray[np.float64]) -> float:
    """Jain's index of fairness: 1 if all have the same, 1/n if one of n has everything.

    Without anything to share it is 1.
    """
    squares = float((shares**2).sum())
    return float(shares.sum()) ** 2 / (len(shares) * squares) if squares else 1.0

"""Hosts of a Ray cluster that execute networks: Ray starts, places and restarts services, and moves no data.

    hosts = nnburst.ray.start("vision", {"net": "net.tflite"}, executor="litert")
    with hosts.client("net") as client:
        (scores,) = client.infer([pixels])      # a burst on this host, else gRPC

Needs the extra `ray`; see docs/ray.md.
"""

try:
    from nnburst.ray.client import Client, Route
    from nnburst.ray.hosts import Hosts, find, start
    from nnburst.ray.service import Place
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("nnburst"):
        raise
    raise ModuleNotFoundError(
        f"nnburst.ray needs the package {error.name}: pip install 'nnburst[ray]'", name=error.name
    ) from error

__all__ = ["Client", "Hosts", "Place", "Route", "find", "start"]

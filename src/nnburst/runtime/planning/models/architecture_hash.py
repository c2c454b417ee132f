"""The hash by which records name a model's architecture: everything but its weights (RT:T6)."""

from __future__ import annotations

import hashlib

import msgspec

from nnburst.hal.model import Model, Subgraph


def architecture_hash(model: Model) -> bytes:
    """32 bytes (SHA-256) over operands, operations, inputs and outputs of all subgraphs.

    DEVIATES: the original hashes the object of extra parameters with its pointers, so that equal models get
    different hashes; here their contents count.
    """
    graphs = [_described(graph) for graph in (model.main, *model.referenced)]
    return hashlib.sha256(msgspec.msgpack.encode(graphs)).digest()


def _described(graph: Subgraph) -> list[object]:
    return [
        [
            (o.type, o.dimensions, o.scale, o.zero_point, o.lifetime, o.extra_params)
            for o in graph.operands
        ],
        [(o.type, o.inputs, o.outputs) for o in graph.operations],
        graph.input_indexes,
        graph.output_indexes,
    ]

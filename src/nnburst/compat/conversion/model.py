"""Model: one graph in 1.0 to 1.2, subgraphs since 1.3.

NNAPI: Conversions.cpp convert(Model) of every version.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import asdict, replace

from nnburst.compat.conversion import subgraph
from nnburst.compat.conversion.type_encoding import prefix_bits
from nnburst.compat.layouts import aidl, memory, v1_0, v1_1, v1_2, v1_3
from nnburst.compat.layouts.levels import HalStruct, check_range, check_type, latest, pick
from nnburst.hal.enums import FeatureLevel
from nnburst.hal.model import ExtensionNameAndPrefix, Model

HalModel = v1_0.Model | v1_1.Model | v1_2.Model | v1_3.Model | aidl.Model

STRUCTS: Final[dict[FeatureLevel, type[HalModel]]] = {
    FeatureLevel.V1_0: v1_0.Model,
    FeatureLevel.V1_1: v1_1.Model,
    FeatureLevel.V1_2: v1_2.Model,
    FeatureLevel.V1_3: v1_3.Model,
    FeatureLevel.AIDL_V1: aidl.Model,
}


def to_canonical(model: HalModel, level: FeatureLevel) -> Model:
    """From a version's model.

    Raises:
        GeneralFailure: numbers of consumers are wrong (O23).
        InvalidArgument: of another version, or a part is not the version's.
    """
    check_type(model, latest(STRUCTS, level), level)
    check_prefixes(getattr(model, "extension_name_to_prefix", ()), level)
    if isinstance(model, v1_3.Model | aidl.Model):
        main = subgraph.to_canonical(model.main, level)
        referenced = tuple(subgraph.to_canonical(graph, level) for graph in model.referenced)
    else:
        main, referenced = subgraph.to_canonical(model, level), ()
    return Model(
        main,
        referenced,
        model.operand_values,
        tuple(memory.to_canonical(pool, level) for pool in model.pools),
        getattr(model, "relax_computation_float32_to_float16", False),
        getattr(model, "extension_name_to_prefix", ()),
    )


def to_hal(model: Model, level: FeatureLevel) -> HalStruct:
    """Into a version's model, consumers counted anew; what the version cannot express is left out.

    Raises:
        InvalidArgument: a POINTER, memory or a number that the version has not.
    """
    model = recounted(model)
    struct = latest(STRUCTS, level)
    if "extension_name_to_prefix" in struct.__struct_fields__:
        check_prefixes(model.extension_name_to_prefix, level)
    main = subgraph.to_hal(model.main, level)
    referenced = tuple(subgraph.to_hal(graph, level) for graph in model.referenced)
    pools = tuple(memory.to_hal(pool, level) for pool in model.pools)
    own = {"main": main, "referenced": referenced, "pools": pools}
    return pick(struct, {**asdict(main), **asdict(model), **own})


def recounted(model: Model) -> Model:
    """The model with the consumers of all operands counted."""
    return replace(
        model,
        main=subgraph.recounted(model.main),
        referenced=tuple(subgraph.recounted(graph) for graph in model.referenced),
    )


def check_prefixes(entries: tuple[ExtensionNameAndPrefix, ...], level: FeatureLevel) -> None:
    """Refuse prefixes of too many bits for the version.

    Raises:
        InvalidArgument: one does not fit.
    """
    highest = 2 ** prefix_bits(level) - 1
    check_range("extension_name_to_prefix", tuple(e.prefix for e in entries), 0, highest)

"""The HAL's versions: structs of 1.0 to 1.3 and AIDL, and conversion from and to canonical types.

Canonical are the structs of `nnburst.hal` (1.3 layout); what they lack is in `memory`, `location`
and `timing` here and in `nnburst.hal.configs`. A version's module holds only what differs from them
and from the version before.

v1_0, v1_1, v1_2, v1_3, aidl    structs
to_canonical, to_hal            `convert` and `unvalidated_convert`, as in nn:: and in V1_X::utils
compliance                      `compliant_with` and `convert_to`: between versions, lossy on demand
requirement                     lowest version that can say a value
type_encoding, type_facts, performance    the originals' helpers on types and performance tables

All functions are pure and may be called from any thread.

NNAPI: Conversions.cpp of every version, LegacyHalUtils.cpp, Validation.cpp validate*.
"""

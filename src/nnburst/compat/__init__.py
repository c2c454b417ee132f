"""The HAL's versions: structs of 1.0 to 1.3 and AIDL, and conversion from and to canonical types.

Canonical are the structs of `nnburst.hal` (1.3 layout); what they lack is in `layouts.memory`,
`layouts.location` and `conversion.timing` and in `nnburst.hal.configs`. A version's module holds only
what differs from them and from the version before.

All functions are pure and may be called from any thread.

NNAPI: Conversions.cpp of every version, LegacyHalUtils.cpp, Validation.cpp validate*.
"""

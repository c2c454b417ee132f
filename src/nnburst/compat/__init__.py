"""Converts the structs of every HAL version (1.0 to 1.3 and AIDL) from and to canonical types.

The canonical types are the structs of `nnburst.hal` (1.3 layout). Types that 1.3 lacks are in
`nnburst.compat.layouts`, `nnburst.compat.timing` and `nnburst.hal.types`. The module of a version has only
the structs that differ from them and from the version before.

All functions are pure and may be called from any thread.

NNAPI: Conversions.cpp of every version, LegacyHalUtils.cpp, Validation.cpp validate*.
"""

"""Hypothesis strategies for requests and results that a packet can carry."""

from hypothesis import strategies as st

from nnburst.hal.enums import ErrorStatus, MeasureTiming
from nnburst.hal.limits import UINT32_MAX, UINT64_MAX
from nnburst.hal.model import DataLocation
from nnburst.hal.types import OutputShape, Request, RequestArgument, Timing

U32 = st.integers(0, UINT32_MAX)
U64 = st.integers(0, UINT64_MAX)
DIMENSIONS = st.lists(U32, max_size=6).map(tuple)
ARGUMENTS = st.builds(
    RequestArgument,
    has_no_value=st.booleans(),
    location=st.builds(DataLocation, U32, U32, U32),
    dimensions=DIMENSIONS,
)
REQUESTS = st.builds(
    Request,
    inputs=st.lists(ARGUMENTS, max_size=8).map(tuple),
    outputs=st.lists(ARGUMENTS, max_size=8).map(tuple),
)
SLOTS = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=8).map(tuple)
MEASURES = st.sampled_from(MeasureTiming)
STATUSES = st.sampled_from(ErrorStatus)
SHAPES = st.lists(st.builds(OutputShape, DIMENSIONS, st.booleans()), max_size=8).map(tuple)
TIMINGS = st.builds(Timing, U64, U64)

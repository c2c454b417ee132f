"""Types of the C module, written by tools/native_types.py from csrc/cdef.h.

A struct stands for itself and for a pointer to it, as its fields are reached alike. Pointers to numbers,
bytes and `void` are Any: cffi takes several kinds of objects for them.
"""

from collections.abc import Callable
from typing import Any, Literal, Self, overload

class nnb_ring_regions:
    first: Any
    second: Any
    first_bytes: int
    second_bytes: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_ring:
    capacity_bytes: int
    quantum: int
    write_index: int
    read_index: int
    missed: int
    synchronized: int
    corrupted: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_rhythm:
    last_ns: int
    period_ns: int
    lead_ns: int
    tail_ns: int
    wake_latency_ns: int
    steady: int
    met_awake: int
    met_asleep: int
    outliers: int
    found: int
    lost: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_cpu_contention:
    until_ns: int
    pause_ns: int
    pauses: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_waiter:
    may_spin: int
    window_ns: int
    window_now_ns: int
    soon: int
    rhythm: nnb_rhythm
    contention: nnb_cpu_contention
    sleeps: int
    spun_ns: int
    descheduled: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_result_summary:
    status: int
    time_on_device: int
    time_in_driver: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_client:
    requests: nnb_ring
    results: nnb_ring
    request_flag: Any
    result_flag: Any
    packet: Any
    waiter: nnb_waiter
    waits_from_ns: int
    max_in_flight: int
    in_flight: int
    overdue: int
    submitted: int
    collected: int
    executions: int
    dropped: int
    flow: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_truth:
    values: Any
    count: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_bound:
    client: nnb_client
    timeout_ns: int
    request: Any
    closed: int
    measured: int
    request_count: int
    result_count: int
    result: Any
    summary: nnb_result_summary
    deadline_ns: int
    truths: nnb_truth
    truth_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_gate:
    def __getitem__(self, index: int) -> Self: ...

class nnb_steps:
    requests: Any
    compute: Any
    context: Any
    gate: nnb_gate
    timeout_ns: int
    deadline_ns: int
    count: int
    at: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_device:
    def __getitem__(self, index: int) -> Self: ...

class nnbx_prepared:
    def __getitem__(self, index: int) -> Self: ...

class nnbx_execution:
    def __getitem__(self, index: int) -> Self: ...

class nnbx_memory:
    def __getitem__(self, index: int) -> Self: ...

class nnbx_option:
    key: Any
    value: Any
    def __getitem__(self, index: int) -> Self: ...

class nnbx_options:
    size: int
    options: nnbx_option
    option_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_performance:
    exec_time: float
    power_usage: float
    def __getitem__(self, index: int) -> Self: ...

class nnbx_operand_performance:
    type: int
    performance: nnbx_performance
    def __getitem__(self, index: int) -> Self: ...

class nnbx_extension_type:
    type: int
    is_tensor: int
    byte_size: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_extension:
    name: Any
    types: nnbx_extension_type
    type_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_description:
    size: int
    name: Any
    version: Any
    type: int
    feature_level: int
    alignment: int
    padding: int
    program_files: int
    constant_files: int
    performances: nnbx_operand_performance
    performance_count: int
    relaxed_scalar: nnbx_performance
    relaxed_tensor: nnbx_performance
    if_performance: nnbx_performance
    while_performance: nnbx_performance
    extensions: nnbx_extension
    extension_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_operand:
    size: int
    type: int
    lifetime: int
    dimensions: Any
    rank: int
    scale: float
    zero_point: int
    value: Any
    value_bytes: int
    subgraph: int
    channel_dim: int
    channel_scales: Any
    channel_count: int
    extension_data: Any
    extension_data_bytes: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_operation:
    type: int
    input_count: int
    inputs: Any
    output_count: int
    outputs: Any
    def __getitem__(self, index: int) -> Self: ...

class nnbx_subgraph:
    operand_size: int
    operands: nnbx_operand
    operand_count: int
    operations: nnbx_operation
    operation_count: int
    inputs: Any
    input_count: int
    outputs: Any
    output_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_extension_prefix:
    name: Any
    prefix: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_model:
    size: int
    main: nnbx_subgraph
    referenced: nnbx_subgraph
    referenced_count: int
    relaxed: int
    prefixes: nnbx_extension_prefix
    prefix_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_hint:
    extension: Any
    code: int
    value: Any
    value_bytes: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_preparation:
    size: int
    preference: int
    priority: int
    deadline_ns: int
    threads: int
    hints: nnbx_hint
    hint_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_writer:
    def __getitem__(self, index: int) -> Self: ...

class nnbx_cached:
    size: int
    program: Any
    program_bytes: int
    constants: Any
    constant_bytes: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_argument:
    size: int
    data: Any
    bytes: int
    memory: nnbx_memory
    dimensions: Any
    rank: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_request:
    size: int
    argument_size: int
    inputs: nnbx_argument
    input_count: int
    outputs: nnbx_argument
    output_count: int
    hints: nnbx_hint
    hint_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_run:
    size: int
    deadline_ns: int
    loop_timeout_ns: int
    measure: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_output_shape:
    rank: int
    is_sufficient: int
    dimensions: Any
    def __getitem__(self, index: int) -> Self: ...

class nnbx_outcome:
    size: int
    device_ns: int
    driver_ns: int
    shapes: nnbx_output_shape
    shape_count: int
    message: Any
    def __getitem__(self, index: int) -> Self: ...

class nnbx_role:
    prepared: nnbx_prepared
    is_output: int
    index: int
    def __getitem__(self, index: int) -> Self: ...

class nnbx_memory_desc:
    size: int
    type: int
    dimensions: Any
    rank: int
    bytes: int
    roles: nnbx_role
    role_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnburst_executor:
    abi: int
    size: int
    open: Any
    close: Any
    describe: Any
    supported: Any
    prepare: Any
    destroy_prepared: Any
    save: Any
    prepare_from_cache: Any
    bind: Any
    run: Any
    destroy_execution: Any
    allocate: Any
    copy_in: Any
    copy_out: Any
    destroy_memory: Any
    def __getitem__(self, index: int) -> Self: ...

class nnb_output_rule:
    element_bytes: int
    is_scalar: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_hosted:
    def __getitem__(self, index: int) -> Self: ...

class nnb_saved:
    bytes: Any
    counts: Any
    def __getitem__(self, index: int) -> Self: ...

class nnb_binding:
    request: Any
    result: Any
    run: Any
    execution: nnbx_execution
    request_count: int
    result_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_counters:
    def __getitem__(self, index: int) -> Self: ...

class nnb_server:
    requests: nnb_ring
    results: nnb_ring
    request_flag: Any
    result_flag: Any
    wakeup_fd: int
    waiter: nnb_waiter
    max_in_flight: int
    idle_ns: int
    stuck_ns: int
    packet: Any
    waiting: Any
    packet_count: int
    measure: int
    counters: nnb_counters
    current: int
    executions: int
    misses: int
    flow: int
    oversized: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_trace_area:
    def __getitem__(self, index: int) -> Self: ...

class nnb_death_holder:
    def __getitem__(self, index: int) -> Self: ...

class nnb_litert_argument:
    memory: Any
    bytes: int
    element_type: int
    apart: int
    rank: int
    dimensions: Any
    def __getitem__(self, index: int) -> Self: ...

class nnb_litert_engine:
    def __getitem__(self, index: int) -> Self: ...

class nnb_litert_call:
    def __getitem__(self, index: int) -> Self: ...

class nnb_onnx_border:
    name: Any
    element: int
    rank: int
    dimensions: Any
    def __getitem__(self, index: int) -> Self: ...

class nnb_onnx_argument:
    memory: Any
    bytes: int
    room: int
    element: int
    element_bytes: int
    apart: int
    place: int
    rank: int
    dimensions: Any
    def __getitem__(self, index: int) -> Self: ...

class nnb_onnx_external:
    name: Any
    memory: Any
    bytes: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_onnx_provider:
    name: Any
    keys: Any
    values: Any
    option_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_onnx_session:
    def __getitem__(self, index: int) -> Self: ...

class nnb_onnx_call:
    def __getitem__(self, index: int) -> Self: ...

class nnb_onnx_state:
    input: int
    output: int
    element: int
    element_bytes: int
    kind: int
    rank: int
    dimensions: Any
    def __getitem__(self, index: int) -> Self: ...

class nnb_onnx_states:
    def __getitem__(self, index: int) -> Self: ...

class nnb_openvino_property:
    key: Any
    value: Any
    def __getitem__(self, index: int) -> Self: ...

class nnb_openvino_network:
    def __getitem__(self, index: int) -> Self: ...

class nnb_openvino_call:
    def __getitem__(self, index: int) -> Self: ...

class nnb_copy:
    to: Any
    bytes: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_fast_run:
    run: Any
    bound: Any
    burst: int
    copies_in: nnb_copy
    copies_out: nnb_copy
    copies_in_count: int
    copies_out_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_thread_burst:
    def __getitem__(self, index: int) -> Self: ...

class nnb_argument_type:
    type: int
    rank: int
    dimensions: Any
    scale: float
    zero_point: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_argument_sizes:
    input_count: int
    output_count: int
    bytes: Any
    types: nnb_argument_type
    threads: nnb_thread_burst
    thread_count: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_place:
    address: Any
    memory: int
    offset: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_cached_request:
    sizes: nnb_argument_sizes
    run: Any
    bound: Any
    places: nnb_place
    quick_ns: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_native_execution:
    sizes: nnb_argument_sizes
    set: int
    completed: int
    adopted: int
    mode: int
    arguments: Any
    def __getitem__(self, index: int) -> Self: ...

class nnb_exchange:
    version: int
    call: Any
    finish: Any
    adopt: Any
    finish_cached: Any
    adopt_event: Any
    new_handle: Any
    offer: Any
    offer_sizes: Any
    offer_memory: Any
    cache: Any
    end_burst: Any
    end: Any
    def __getitem__(self, index: int) -> Self: ...

class nnb_bench_interface:
    create: Any
    set_input: Any
    set_output: Any
    set_input_from_memory: Any
    set_output_from_memory: Any
    compute: Any
    burst_compute: Any
    free: Any
    compilation: Any
    burst: Any
    execution: Any
    memory: Any
    input: Any
    output: Any
    bytes: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_caller:
    id: int
    bytes: int
    error: int
    packet: Any
    def __getitem__(self, index: int) -> Self: ...

class nnb_reply_reader:
    epoll: int
    def __getitem__(self, index: int) -> Self: ...

class nnb_receive_lock:
    def __getitem__(self, index: int) -> Self: ...

class nnb_spawn:
    path: Any
    arguments: Any
    environment: Any
    source: Any
    target: Any
    count: int
    close: Any
    close_count: int
    pid: int
    def __getitem__(self, index: int) -> Self: ...

class _Lib:
    NNBURST_EXECUTOR_ABI: int
    NNBX_MESSAGE_BYTES: int
    NNBX_MAX_RANK: int
    NNBX_NOT_AVAILABLE: int
    NNBX_MEASURED: int
    NNBX_NO_DEADLINE: int
    NNB_COUNTED_STATUSES: int
    NNB_DURATION_BUCKETS: int
    NNB_FIRST_BUCKET_BITS: int
    NNB_SAMPLED_EVERY: int
    NNB_EXCHANGE_VERSION: int
    NNB_KEEP_OFFER: int
    NNB_IN_PLACE: int
    NNB_DATUM_BYTES: int
    NNB_MAX_BINDINGS: int
    NNB_LITERT_ALIGNMENT: int
    NNB_ONNX_ALIGNMENT: int
    NNB_ONNX_MAX_RANK: int
    NNB_ONNX_MESSAGE_BYTES: int
    NNB_ONNX_NAME_BYTES: int
    NNB_LITERT_MAX_RANK: int
    NNB_LITERT_MESSAGE_BYTES: int
    NNB_FMQ_NOT_FULL: int
    NNB_FMQ_NOT_EMPTY: int
    NNB_FMQ_ATTENTION: int
    NNB_FMQ_ASYNC: int
    NNB_FMQ_WRITER_ATTENTION: int
    NNB_FMQ_WRITER_ASYNC: int
    NNB_FMQ_LOOK: int
    NNB_ENDS_BYTES: int
    NNB_MESSAGE_HEADER: int
    def nnb_load_acquire_u64(self, a0: Any, /) -> int: ...
    def nnb_store_release_u64(self, a0: Any, a1: int, /) -> None: ...
    def nnb_ring_init(
        self, a0: nnb_ring, a1: Any, a2: Any, a3: Any, a4: int, a5: int, a6: int, /
    ) -> int: ...
    def nnb_ring_available_to_write(self, a0: nnb_ring, /) -> int: ...
    def nnb_ring_available_to_read(self, a0: nnb_ring, /) -> int: ...
    def nnb_ring_look(self, a0: nnb_ring, a1: int, /) -> int: ...
    def nnb_ring_begin_write(self, a0: nnb_ring, a1: int, a2: nnb_ring_regions, /) -> int: ...
    def nnb_ring_commit_write(self, a0: nnb_ring, a1: int, /) -> int: ...
    def nnb_ring_begin_read(self, a0: nnb_ring, a1: int, a2: nnb_ring_regions, /) -> int: ...
    def nnb_ring_commit_read(self, a0: nnb_ring, a1: int, /) -> int: ...
    def nnb_ring_write(self, a0: nnb_ring, a1: Any, a2: int, /) -> int: ...
    def nnb_ring_read(self, a0: nnb_ring, a1: Any, a2: int, /) -> int: ...
    def nnb_ring_peek(self, a0: nnb_ring, a1: Any, a2: int, /) -> int: ...
    def nnb_event_flag_wake(self, a0: Any, a1: int, /) -> int: ...
    def nnb_event_flag_notify(self, a0: Any, a1: int, /) -> None: ...
    def nnb_event_flag_wait_unlocked(
        self, a0: Any, a1: int, a2: int, a3: int, a4: Any, /
    ) -> int: ...
    def nnb_waiter_init(self, a0: nnb_waiter, a1: int, a2: int, /) -> None: ...
    def nnb_queue_add_types(self) -> int: ...
    def nnb_client_share_interpreter(self, a0: nnb_client, /) -> None: ...
    def nnb_client_run(self, a0: nnb_bound, /) -> int: ...
    def nnb_client_resume(self, a0: nnb_bound, a1: int, /) -> int: ...
    def nnb_client_abandon(self, a0: nnb_bound, /) -> None: ...
    def nnb_client_submit(self, a0: nnb_bound, /) -> int: ...
    def nnb_client_run_at_once(self, a0: nnb_bound, /) -> int: ...
    def nnb_client_collect(self, a0: nnb_bound, a1: int, /) -> int: ...
    def nnb_client_arm(self, a0: nnb_client, /) -> int: ...
    def nnb_client_forsake(self, a0: nnb_client, /) -> int: ...
    def nnb_client_stop(self, a0: nnb_client, /) -> None: ...
    def nnb_client_drain_unlocked(self, a0: nnb_client, a1: int, /) -> int: ...
    def nnb_gate_enter(self, a0: nnb_gate, a1: int, /) -> int: ...
    def nnb_gate_leave(self, a0: nnb_gate, a1: int, /) -> None: ...
    def nnb_steps_run(self, a0: nnb_steps, /) -> int: ...
    def nnb_steps_go_on(self, a0: nnb_steps, /) -> int: ...
    def nnb_steps_abandon(self, a0: nnb_steps, /) -> None: ...
    def nnb_executor_load_unlocked(self, a0: Any, a1: Any, /) -> nnburst_executor: ...
    def nnb_null_executor(self) -> nnburst_executor: ...
    def nnb_executor_describe_nothing(self, a0: nnbx_description, /) -> None: ...
    def nnb_hosted_bind_unlocked(
        self,
        a0: nnburst_executor,
        a1: nnbx_prepared,
        a2: nnbx_request,
        a3: nnb_output_rule,
        a4: Any,
        a5: int,
        a6: int,
        a7: Any,
        a8: Any,
        /,
    ) -> nnb_hosted: ...
    def nnb_hosted_free_unlocked(self, a0: nnb_hosted, /) -> None: ...
    def nnb_hosted_run(self, a0: nnbx_execution, a1: nnbx_run, a2: nnbx_outcome, /) -> int: ...
    def nnb_hosted_copied_bytes(self, a0: nnb_hosted, /) -> int: ...
    def nnb_executor_save_unlocked(
        self, a0: nnburst_executor, a1: nnbx_prepared, a2: int, a3: nnb_saved, /
    ) -> int: ...
    def nnb_saved_free(self, a0: nnb_saved, /) -> None: ...
    def nnb_run_unlocked(
        self, a0: Any, a1: nnbx_execution, a2: nnbx_run, a3: nnbx_outcome, /
    ) -> int: ...
    def nnb_bench_run(self, a0: Any, a1: nnbx_execution, a2: int, a3: Any, /) -> int: ...
    def nnb_counters_time(self, a0: nnb_counters, a1: int, a2: int, /) -> None: ...
    def nnb_counters_merge(self, a0: nnb_counters, a1: nnb_counters, /) -> None: ...
    def nnb_counters_settle(self, a0: nnb_counters, /) -> None: ...
    def nnb_counters_note_begin(self, a0: nnb_counters, /) -> int: ...
    def nnb_counters_note_end(self, a0: nnb_counters, a1: int, /) -> None: ...
    def nnb_server_next_unlocked(
        self, a0: nnb_server, a1: Any, a2: int, a3: int, a4: int, /
    ) -> int: ...
    def nnb_server_bind(self, a0: nnb_server, a1: int, a2: nnb_binding, /) -> None: ...
    def nnb_server_call(self, a0: nnb_server, /) -> None: ...
    def nnb_server_attend(self, a0: nnb_server, /) -> None: ...
    nnb_trace_on: int
    def nnb_trace_start(self, a0: nnb_trace_area, a1: Any, a2: int, /) -> None: ...
    def nnb_trace_stop(self) -> None: ...
    def nnb_trace_add_name(self, a0: int, a1: int, a2: Any, /) -> int: ...
    def nnb_trace_ticks(self, a0: int, /) -> int: ...
    def nnb_trace_mark(self, a0: int, a1: int, a2: int, a3: int, /) -> None: ...
    NNB_TRACE_RINGS: int
    NNB_TRACE_RECORDS: int
    NNB_TRACE_NAMES: int
    NNB_TRACE_NAME_BYTES: int
    def nnb_trace_area_bytes(self) -> int: ...
    def nnb_forbid_linger(self, a0: int, /) -> None: ...
    def nnb_pool_map(self, a0: int, a1: int, a2: int, /) -> Any: ...
    def nnb_pool_unmap(self, a0: Any, a1: int, /) -> None: ...
    def nnb_death_word_take(self, a0: Any, a1: int, a2: Any, a3: Any, /) -> nnb_death_holder: ...
    def nnb_death_word_let_go(self, a0: nnb_death_holder, a1: int, /) -> None: ...
    def nnb_death_word_announce(self, a0: nnb_death_holder, /) -> None: ...
    def nnb_death_word_watch_unlocked(self, a0: Any, a1: Any, a2: int, /) -> int: ...
    def nnb_death_word_release(self, a0: Any, a1: Any, /) -> None: ...
    def nnb_die_with_parent(self, a0: int, /) -> int: ...
    def nnb_set_thread_name(self, a0: Any, /) -> None: ...
    def nnb_lock_memory(self, a0: int, /) -> int: ...
    def nnb_give_memory_back(self) -> None: ...
    def nnb_sandbox_enter(self, a0: Any, a1: Any, /) -> int: ...
    def nnb_litert_open(self, a0: Any, a1: Any, a2: int, /) -> int: ...
    def nnb_litert_trial_begin(
        self,
        a0: Any,
        a1: Any,
        a2: int,
        a3: nnb_litert_argument,
        a4: nnb_litert_argument,
        a5: Any,
        /,
    ) -> int: ...
    def nnb_litert_trial_end_unlocked(self, a0: int, /) -> int: ...
    def nnb_litert_engine_new_unlocked(
        self, a0: Any, a1: int, a2: int, a3: int, a4: Any, /
    ) -> nnb_litert_engine: ...
    def nnb_litert_engine_free(self, a0: nnb_litert_engine, /) -> None: ...
    def nnb_litert_output_layouts(
        self, a0: nnb_litert_engine, a1: nnb_litert_argument, a2: int, /
    ) -> int: ...
    def nnb_litert_bind(
        self,
        a0: nnb_litert_engine,
        a1: nnb_litert_argument,
        a2: int,
        a3: nnb_litert_argument,
        a4: int,
        /,
    ) -> nnb_litert_call: ...
    def nnb_litert_call_free(self, a0: nnb_litert_call, /) -> None: ...
    def nnb_litert_run(self, a0: nnbx_execution, a1: nnbx_run, a2: nnbx_outcome, /) -> int: ...
    def nnb_litert_set_trace_name(self, a0: nnb_litert_call, a1: int, /) -> None: ...
    def nnb_litert_copied_bytes(self, a0: nnb_litert_call, /) -> int: ...
    def nnb_onnx_plug(self, a0: Any, a1: Any, a2: Any, a3: Any, /) -> int: ...
    def nnb_onnx_states_new(
        self, a0: nnb_onnx_session, a1: nnb_onnx_state, a2: int, a3: int, /
    ) -> nnb_onnx_states: ...
    def nnb_onnx_states_free(self, a0: nnb_onnx_states, /) -> None: ...
    def nnb_onnx_use_states(self, a0: nnb_onnx_call, a1: nnb_onnx_states, a2: Any, /) -> None: ...
    def nnb_onnx_state_address(self, a0: nnb_onnx_states, a1: int, a2: int, a3: int, /) -> int: ...
    def nnb_onnx_open(self, a0: Any, a1: Any, a2: Any, /) -> int: ...
    def nnb_onnx_session_new_unlocked(
        self,
        a0: Any,
        a1: int,
        a2: int,
        a3: nnb_onnx_external,
        a4: int,
        a5: nnb_onnx_provider,
        a6: Any,
        a7: Any,
        /,
    ) -> nnb_onnx_session: ...
    def nnb_onnx_session_free(self, a0: nnb_onnx_session, /) -> None: ...
    def nnb_onnx_count(self, a0: nnb_onnx_session, a1: int, /) -> int: ...
    def nnb_onnx_describe(
        self, a0: nnb_onnx_session, a1: int, a2: int, a3: nnb_onnx_border, /
    ) -> int: ...
    def nnb_onnx_border_free(self, a0: nnb_onnx_border, /) -> None: ...
    def nnb_onnx_bind(
        self, a0: nnb_onnx_session, a1: nnb_onnx_argument, a2: nnb_onnx_argument, a3: Any, /
    ) -> nnb_onnx_call: ...
    def nnb_onnx_call_free(self, a0: nnb_onnx_call, /) -> None: ...
    def nnb_onnx_run(self, a0: nnbx_execution, a1: nnbx_run, a2: nnbx_outcome, /) -> int: ...
    def nnb_onnx_stop(self, a0: nnb_onnx_call, a1: int, /) -> None: ...
    def nnb_onnx_copied_bytes(self, a0: nnb_onnx_call, /) -> int: ...
    def nnb_openvino_open(self, a0: Any, a1: Any, a2: int, a3: Any, a4: Any, /) -> int: ...
    def nnb_openvino_device(self, a0: Any, a1: Any, a2: Any, /) -> int: ...
    def nnb_openvino_network_new_unlocked(
        self, a0: Any, a1: int, a2: Any, a3: nnb_openvino_property, a4: int, a5: int, a6: Any, /
    ) -> nnb_openvino_network: ...
    def nnb_openvino_network_import_unlocked(
        self, a0: Any, a1: int, a2: Any, a3: nnb_openvino_property, a4: int, a5: int, a6: Any, /
    ) -> nnb_openvino_network: ...
    def nnb_openvino_export_unlocked(
        self, a0: nnb_openvino_network, a1: Any, a2: Any, /
    ) -> int: ...
    def nnb_openvino_network_free(self, a0: nnb_openvino_network, /) -> None: ...
    def nnb_openvino_count(self, a0: nnb_openvino_network, a1: int, /) -> int: ...
    def nnb_openvino_describe(
        self, a0: nnb_openvino_network, a1: int, a2: int, a3: nnb_onnx_border, /
    ) -> int: ...
    def nnb_openvino_bind(
        self, a0: nnb_openvino_network, a1: nnb_onnx_argument, a2: nnb_onnx_argument, a3: Any, /
    ) -> nnb_openvino_call: ...
    def nnb_openvino_call_free(self, a0: nnb_openvino_call, /) -> None: ...
    def nnb_openvino_run(self, a0: nnbx_execution, a1: nnbx_run, a2: nnbx_outcome, /) -> int: ...
    def nnb_openvino_stop(self, a0: nnb_openvino_call, a1: int, /) -> None: ...
    def nnb_openvino_copied_bytes(self, a0: nnb_openvino_call, /) -> int: ...
    def nnb_thread_burst_set(self, a0: nnb_thread_burst, a1: int, a2: int, /) -> None: ...
    def nnb_thread_burst_was_used(self, a0: nnb_thread_burst, /) -> int: ...
    def nnb_argument_sizes_in_use(self, a0: nnb_argument_sizes, /) -> int: ...
    def nnb_cached_request_in_use(self, a0: nnb_cached_request, /) -> int: ...
    def nnb_capi_run(self, a0: Any, /) -> int: ...
    def nnb_bench_interface_unlocked(self, a0: nnb_bench_interface, a1: int, a2: Any, /) -> int: ...
    def nnb_reply_reader_open(self, a0: nnb_reply_reader, a1: int, /) -> int: ...
    def nnb_reply_reader_call_unlocked(
        self, a0: nnb_reply_reader, a1: nnb_caller, a2: Any, a3: int, a4: int, /
    ) -> int: ...
    def nnb_reply_reader_notice(self, a0: nnb_reply_reader, a1: nnb_caller, /) -> None: ...
    def nnb_reply_reader_wait_unlocked(self, a0: nnb_reply_reader, /) -> int: ...
    def nnb_reply_reader_done(self, a0: nnb_reply_reader, /) -> None: ...
    def nnb_reply_reader_end(self, a0: nnb_reply_reader, /) -> None: ...
    def nnb_reply_reader_close(self, a0: nnb_reply_reader, /) -> None: ...
    def nnb_receive_lock_open(self, a0: nnb_receive_lock, a1: int, a2: int, /) -> int: ...
    def nnb_receive_lock_acquire_unlocked(self, a0: nnb_receive_lock, /) -> None: ...
    def nnb_receive_lock_release(self, a0: nnb_receive_lock, /) -> None: ...
    def nnb_spawn_unlocked(self, a0: nnb_spawn, /) -> int: ...
    def nnb_empty_call(self, a0: int, /) -> int: ...
    def nnb_empty_call_unlocked(self, a0: int, /) -> int: ...
    def nnb_ring_read_all(self, a0: nnb_ring, a1: Any, a2: Any, /) -> int: ...
    def nnb_cpu_contention_update(
        self, a0: nnb_cpu_contention, a1: int, a2: int, a3: int, a4: int, /
    ) -> None: ...
    def nnb_rhythm_event(self, a0: nnb_rhythm, a1: int, a2: int, /) -> None: ...
    def nnb_rhythm_overslept(self, a0: nnb_rhythm, a1: int, /) -> None: ...
    def nnb_rhythm_question(self, a0: nnb_rhythm, a1: int, /) -> None: ...
    def nnb_rhythm_plan(self, a0: nnb_rhythm, a1: int, a2: Any, a3: Any, /) -> int: ...
    def nnb_waiter_note(self, a0: nnb_waiter, a1: int, /) -> None: ...
    def nnb_waiter_spin_window(self, a0: nnb_waiter, /) -> int: ...
    def nnb_wait_readable(self, a0: nnb_waiter, a1: nnb_ring, a2: Any, a3: int, /) -> int: ...
    def nnb_bench_floor_client(self, a0: Any, a1: int, a2: Any, /) -> int: ...
    def nnb_bench_floor_server_unlocked(self, a0: Any, a1: int, /) -> None: ...
    def nnb_bench_queue_client(
        self, a0: nnb_ring, a1: Any, a2: nnb_ring, a3: Any, a4: int, a5: int, a6: int, a7: Any, /
    ) -> int: ...
    def nnb_bench_queue_server_unlocked(
        self, a0: nnb_ring, a1: Any, a2: nnb_ring, a3: Any, a4: int, a5: int, /
    ) -> None: ...
    def nnb_bench_futex_client(self, a0: Any, a1: int, a2: Any, /) -> int: ...
    def nnb_bench_futex_server_unlocked(self, a0: Any, a1: int, /) -> None: ...
    def nnb_bench_steps(self, a0: nnb_steps, a1: int, a2: Any, /) -> int: ...
    def nnb_bench_runs(self, a0: nnb_steps, a1: int, a2: Any, /) -> int: ...
    NNB_TRACE_BEGIN: int
    NNB_TRACE_END: int
    NNB_TRACE_SWITCH: int
    NNB_TRACE_INSTANT: int
    NNB_TRACE_COUNTER: int
    NNB_ONNX_CPU: int
    NNB_ONNX_GPU: int
    NNB_ONNX_NPU: int
    NNB_RING_OK: int
    NNB_RING_FULL: int
    NNB_RING_EMPTY: int
    NNB_RING_TOO_LARGE: int
    NNB_RING_CORRUPT: int
    NNB_RING_OVERRUN: int
    NNB_END_TIMED_OUT: int
    NNB_END_INTERRUPTED: int
    NNB_END_CLOSED: int
    NNB_END_PEER_CLOSED: int
    NNB_END_PEER_DIED: int
    NNB_END_BUSY: int
    NNB_END_MALFORMED: int
    NNB_END_TAKEN: int
    NNB_END_FAILED: int
    NNB_END_UNWAITABLE: int
    NNB_END_BAD_TIMEOUT: int
    NNB_END_BAD_SIZE: int
    NNB_END_WAS_CLOSED: int
    NNB_END_WAS_DEAD: int
    NNB_END_BAD_COUNT: int
    NNB_END_UNCLAIMED: int
    NNB_EVENT_FLAG_OK: int
    NNB_EVENT_FLAG_TIMED_OUT: int
    NNB_EVENT_FLAG_INTERRUPTED: int
    NNB_EVENT_FLAG_BAD_VALUE: int
    NNB_CLIENT_SAME: int
    NNB_CLIENT_RESULT: int
    NNB_CLIENT_MALFORMED: int
    NNB_CLIENT_TIMED_OUT: int
    NNB_CLIENT_INTERRUPTED: int
    NNB_CLIENT_STOPPED: int
    NNB_CLIENT_CORRUPT: int
    NNB_CLIENT_SURPLUS: int
    NNB_CLIENT_NO_ROOM: int
    NNB_CLIENT_BUSY: int
    NNB_CLIENT_IN_FLIGHT: int
    NNB_CLIENT_SENT: int
    NNB_CLIENT_UNBOUND: int
    NNB_CLIENT_SAME_BUT_TIMING: int
    NNB_CAUGHT_SPINNING: int
    NNB_CAUGHT_ASLEEP_EARLY: int
    NNB_CAUGHT_ASLEEP_LATE: int
    NNB_CAUGHT_UNPLANNED: int
    NNB_WAIT_READY: int
    NNB_WAIT_TIMED_OUT: int
    NNB_WAIT_ATTENTION: int
    NNB_WAIT_INTERRUPTED: int
    NNB_WAIT_PEER_CHANGED: int
    NNB_SERVER_MISS: int
    NNB_SERVER_CALL: int
    NNB_SERVER_ATTENTION: int
    NNB_SERVER_IDLE: int
    NNB_SERVER_CORRUPT: int
    NNB_SERVER_STUCK: int
    NNB_SERVER_LOST: int
    NNB_REPLY_ANSWERED: int
    NNB_REPLY_NOTICED: int
    NNB_REPLY_ENDED: int
    NNB_REPLY_TIMED_OUT: int
    NNB_REPLY_INTERRUPTED: int
    NNB_REPLY_NOT_SENT: int
    NNB_REPLY_READABLE: int
    NNB_LITERT_OK: int
    NNB_LITERT_NO_LIBRARY: int
    NNB_LITERT_NO_SYMBOL: int
    NNB_LITERT_NO_ENVIRONMENT: int
    NNB_LITERT_CRASHED: int
    NNB_LITERT_REFUSED: int
    NNB_LITERT_WRONG_RESULT: int
    NNB_ONNX_IN_PLACE: int
    NNB_ONNX_IN_TURNS: int
    NNB_ONNX_GROWING: int
    NNB_ONNX_WHOLE: int
    NNB_ONNX_ROOM: int
    NNB_ONNX_STATE: int
    NNB_ONNX_OK: int
    NNB_ONNX_NO_LIBRARY: int
    NNB_ONNX_NO_SYMBOL: int
    NNB_ONNX_TOO_OLD: int
    NNB_ONNX_FAILED: int
    NNB_OPENVINO_OK: int
    NNB_OPENVINO_NO_LIBRARY: int
    NNB_OPENVINO_NO_SYMBOL: int
    NNB_OPENVINO_FAILED: int

class _Ffi:
    NULL: Any
    CData: type
    errno: int
    @overload
    def new(
        self, kind: Literal["struct nnb_ring_regions *"], init: object = ..., /
    ) -> nnb_ring_regions: ...
    @overload
    def new(self, kind: Literal["struct nnb_ring *"], init: object = ..., /) -> nnb_ring: ...
    @overload
    def new(self, kind: Literal["struct nnb_rhythm *"], init: object = ..., /) -> nnb_rhythm: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_cpu_contention *"], init: object = ..., /
    ) -> nnb_cpu_contention: ...
    @overload
    def new(self, kind: Literal["struct nnb_waiter *"], init: object = ..., /) -> nnb_waiter: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_result_summary *"], init: object = ..., /
    ) -> nnb_result_summary: ...
    @overload
    def new(self, kind: Literal["struct nnb_client *"], init: object = ..., /) -> nnb_client: ...
    @overload
    def new(self, kind: Literal["struct nnb_truth *"], init: object = ..., /) -> nnb_truth: ...
    @overload
    def new(self, kind: Literal["struct nnb_bound *"], init: object = ..., /) -> nnb_bound: ...
    @overload
    def new(self, kind: Literal["struct nnb_gate *"], init: object = ..., /) -> nnb_gate: ...
    @overload
    def new(self, kind: Literal["struct nnb_steps *"], init: object = ..., /) -> nnb_steps: ...
    @overload
    def new(self, kind: Literal["struct nnbx_device *"], init: object = ..., /) -> nnbx_device: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_prepared *"], init: object = ..., /
    ) -> nnbx_prepared: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_execution *"], init: object = ..., /
    ) -> nnbx_execution: ...
    @overload
    def new(self, kind: Literal["struct nnbx_memory *"], init: object = ..., /) -> nnbx_memory: ...
    @overload
    def new(self, kind: Literal["struct nnbx_option *"], init: object = ..., /) -> nnbx_option: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_options *"], init: object = ..., /
    ) -> nnbx_options: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_performance *"], init: object = ..., /
    ) -> nnbx_performance: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_operand_performance *"], init: object = ..., /
    ) -> nnbx_operand_performance: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_extension_type *"], init: object = ..., /
    ) -> nnbx_extension_type: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_extension *"], init: object = ..., /
    ) -> nnbx_extension: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_description *"], init: object = ..., /
    ) -> nnbx_description: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_operand *"], init: object = ..., /
    ) -> nnbx_operand: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_operation *"], init: object = ..., /
    ) -> nnbx_operation: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_subgraph *"], init: object = ..., /
    ) -> nnbx_subgraph: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_extension_prefix *"], init: object = ..., /
    ) -> nnbx_extension_prefix: ...
    @overload
    def new(self, kind: Literal["struct nnbx_model *"], init: object = ..., /) -> nnbx_model: ...
    @overload
    def new(self, kind: Literal["struct nnbx_hint *"], init: object = ..., /) -> nnbx_hint: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_preparation *"], init: object = ..., /
    ) -> nnbx_preparation: ...
    @overload
    def new(self, kind: Literal["struct nnbx_writer *"], init: object = ..., /) -> nnbx_writer: ...
    @overload
    def new(self, kind: Literal["struct nnbx_cached *"], init: object = ..., /) -> nnbx_cached: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_argument *"], init: object = ..., /
    ) -> nnbx_argument: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_request *"], init: object = ..., /
    ) -> nnbx_request: ...
    @overload
    def new(self, kind: Literal["struct nnbx_run *"], init: object = ..., /) -> nnbx_run: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_output_shape *"], init: object = ..., /
    ) -> nnbx_output_shape: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_outcome *"], init: object = ..., /
    ) -> nnbx_outcome: ...
    @overload
    def new(self, kind: Literal["struct nnbx_role *"], init: object = ..., /) -> nnbx_role: ...
    @overload
    def new(
        self, kind: Literal["struct nnbx_memory_desc *"], init: object = ..., /
    ) -> nnbx_memory_desc: ...
    @overload
    def new(
        self, kind: Literal["struct nnburst_executor *"], init: object = ..., /
    ) -> nnburst_executor: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_output_rule *"], init: object = ..., /
    ) -> nnb_output_rule: ...
    @overload
    def new(self, kind: Literal["struct nnb_hosted *"], init: object = ..., /) -> nnb_hosted: ...
    @overload
    def new(self, kind: Literal["struct nnb_saved *"], init: object = ..., /) -> nnb_saved: ...
    @overload
    def new(self, kind: Literal["struct nnb_binding *"], init: object = ..., /) -> nnb_binding: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_counters *"], init: object = ..., /
    ) -> nnb_counters: ...
    @overload
    def new(self, kind: Literal["struct nnb_server *"], init: object = ..., /) -> nnb_server: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_trace_area *"], init: object = ..., /
    ) -> nnb_trace_area: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_death_holder *"], init: object = ..., /
    ) -> nnb_death_holder: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_litert_argument *"], init: object = ..., /
    ) -> nnb_litert_argument: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_litert_engine *"], init: object = ..., /
    ) -> nnb_litert_engine: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_litert_call *"], init: object = ..., /
    ) -> nnb_litert_call: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_onnx_border *"], init: object = ..., /
    ) -> nnb_onnx_border: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_onnx_argument *"], init: object = ..., /
    ) -> nnb_onnx_argument: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_onnx_external *"], init: object = ..., /
    ) -> nnb_onnx_external: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_onnx_provider *"], init: object = ..., /
    ) -> nnb_onnx_provider: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_onnx_session *"], init: object = ..., /
    ) -> nnb_onnx_session: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_onnx_call *"], init: object = ..., /
    ) -> nnb_onnx_call: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_onnx_state *"], init: object = ..., /
    ) -> nnb_onnx_state: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_onnx_states *"], init: object = ..., /
    ) -> nnb_onnx_states: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_openvino_property *"], init: object = ..., /
    ) -> nnb_openvino_property: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_openvino_network *"], init: object = ..., /
    ) -> nnb_openvino_network: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_openvino_call *"], init: object = ..., /
    ) -> nnb_openvino_call: ...
    @overload
    def new(self, kind: Literal["struct nnb_copy *"], init: object = ..., /) -> nnb_copy: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_fast_run *"], init: object = ..., /
    ) -> nnb_fast_run: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_thread_burst *"], init: object = ..., /
    ) -> nnb_thread_burst: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_argument_type *"], init: object = ..., /
    ) -> nnb_argument_type: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_argument_sizes *"], init: object = ..., /
    ) -> nnb_argument_sizes: ...
    @overload
    def new(self, kind: Literal["struct nnb_place *"], init: object = ..., /) -> nnb_place: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_cached_request *"], init: object = ..., /
    ) -> nnb_cached_request: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_native_execution *"], init: object = ..., /
    ) -> nnb_native_execution: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_exchange *"], init: object = ..., /
    ) -> nnb_exchange: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_bench_interface *"], init: object = ..., /
    ) -> nnb_bench_interface: ...
    @overload
    def new(self, kind: Literal["struct nnb_caller *"], init: object = ..., /) -> nnb_caller: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_reply_reader *"], init: object = ..., /
    ) -> nnb_reply_reader: ...
    @overload
    def new(
        self, kind: Literal["struct nnb_receive_lock *"], init: object = ..., /
    ) -> nnb_receive_lock: ...
    @overload
    def new(self, kind: Literal["struct nnb_spawn *"], init: object = ..., /) -> nnb_spawn: ...
    @overload
    def new(self, kind: str, init: object = ..., /) -> Any: ...
    def cast(self, kind: str, value: object, /) -> Any: ...
    def from_buffer(self, *arguments: object, require_writable: bool = ...) -> Any: ...
    def buffer(self, data: object, size: int = ..., /) -> Any: ...
    def string(self, data: object, most: int = ..., /) -> bytes: ...
    def addressof(self, data: object, *fields: str | int) -> Any: ...
    def sizeof(self, kind: object, /) -> int: ...
    def gc(self, data: object, destroy: object, size: int = ...) -> Any: ...
    def release(self, data: object, /) -> None: ...
    def typeof(self, kind: object, /) -> Any: ...
    def offsetof(self, kind: str, *fields: str) -> int: ...
    def new_handle(self, value: object, /) -> Any: ...
    def from_handle(self, handle: object, /) -> Any: ...
    def unpack(self, data: object, length: int, /) -> Any: ...
    def memmove(self, target: object, source: object, size: int, /) -> None: ...
    def def_extern(self, *arguments: object, **options: object) -> Callable[[Any], Any]: ...

lib: _Lib
ffi: _Ffi

class QueueEnd:
    def __init__(
        self,
        ring: int,
        flag: int,
        words: int,
        writes: bool,
        quota_allows: bool,
        spin_window_ns: int,
        quantum: int,
        keep: object,
        arrays: object,
        empty: object,
        dtype: object,
        elements: Callable[..., object],
        raise_for: Callable[..., object],
        /,
    ) -> None: ...
    def write(self, elements: object, timeout: float = 0.0) -> bool: ...
    def read(self, count: int, timeout: float = 0.0) -> Any: ...
    def read_into(self, array: object, timeout: float = 0.0) -> bool: ...
    def send(self, message: object, timeout: float = 0.0) -> bool: ...
    def receive(self, timeout: float = 0.0) -> bytes | None: ...
    def begin(self, count: int, timeout: float, /) -> tuple[int, int, int, int] | None: ...
    def commit(self, count: int, /) -> bool: ...
    def bind(
        self, array: object, memory: object, timeout: float, queue: object, /
    ) -> Callable[[], Any]: ...
    def close(self) -> None: ...
    def watch(self) -> int: ...
    def arm(self, count: int, /) -> bool: ...
    def wake_self(self) -> None: ...
    def peer(self) -> int: ...
    def available(self) -> int: ...
    def statistics(self) -> tuple[int, int, int, int, int]: ...

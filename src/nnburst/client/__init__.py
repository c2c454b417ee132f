"""The client: what a program uses to reach a driver.

launch.py          start a driver of one's own
connect.py         find one that is running
handshake.py       Hello and Welcome
device.py          Device: prepares models, owns pools
prepared_model.py  PreparedModel: executes over the socket, opens bursts
execution.py       one such execution
pending.py         Pending: an outcome that is to come
preparation.py     a model that is being prepared
pending_execution.py an execution that nobody waits for yet
callbacks.py       what hears of their outcomes, exactly once
fenced_execution.py one that begins when fences have signalled
sync_fence.py      those fences
reusable_execution.py one that is bound once and runs often
aidl_burst.py      AIDL's burst, over the socket
aidl_results.py    results with timing in nanoseconds
burst.py           Burst: executes over shared memory
bound_request.py   a request bound to its memory, and the run that is one C call
array_execution.py `Burst.execute`: arrays to a bound request and back
burst_asyncio.py   runs in an event loop
burst_channels.py  the two queues of a burst
kicks.py           how a driver wakes an event loop
slots.py           the numbers by which a burst names pools
stateful_burst.py  networks whose state stays in the pools
carried_pools.py   models that bring their pools along
compilation_cache.py a directory of compilations, for the next start
memory.py          Memory: pools with numpy views
arguments.py       numpy arrays against the model's operands
staging.py         private pools for arrays that lie elsewhere
upcalls.py         answers what drivers ask
process.py         a driver process: its last words
ending.py          how a driver ended
death_handler.py   tells callbacks of the driver's death
death_watch.py     the driver's death word
death_notices.py   what a program wants to have run then
"""

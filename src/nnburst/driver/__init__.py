"""The driver: what runs in the other process.

main.py            command line of the process: one client (`--fd`) or a supervisor (`--serve`)
supervisor.py      accepts connections and forks a worker for each
listener.py        a named socket with exactly one owner
worker.py          serves one client
client_process.py  whose end is the worker's
scheduler.py       what of a client's work runs when
lanes.py           threads that run jobs by priority
launching.py       what calls share that only launch something
outbox.py          notifications on their way to the client
device.py          the IDevice behind a worker
preparation.py     a model to be prepared, checked
prepared_model.py  a model and its executions
compilation_cache.py saves prepared models to a client's files and loads them again
cache_format.py    what lies in those files
cache_files.py     their descriptors
cache_key.py       the secret that seals them
capabilities.py    how fast the device says it is
user_files.py      where a user's settings lie, and what drivers remember
launched_execution.py a request that is bound and waits for its turn
pools.py           the client's memory, mapped
fenced_execution.py executions that begin when fences have signalled
fence_waiter.py    the thread that waits for them
reusable_execution.py executions that are bound once and run often
aidl_burst.py      AIDL's burst: memory known by numbers
burst.py           a burst: the thread that serves its requests
bindings.py        requests that a burst has bound, known again by their bytes
slots.py           a burst's slots and the memory behind them
executors.py       finding an executor by name
liveness.py        what lets the client notice a death
quotas.py          what a worker may use up
"""

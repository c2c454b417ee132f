"""Records the work of processes in shared memory, and makes files for Perfetto and reports from it."""

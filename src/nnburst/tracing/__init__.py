"""Records the work of processes in shared memory; makes files for Perfetto and reports from the records."""

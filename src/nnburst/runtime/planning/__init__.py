"""Which device runs which operation, in which steps (runtime.md §3). Pure: model and answers in, plan out."""

/* The ends of a queue as Python's own objects, for calls that enter C directly. */
#ifndef NNB_QUEUE_PYTHON_H
#define NNB_QUEUE_PYTHON_H

/* Adds the class QueueEnd to the module nnburst._native; 0, or -1 with an exception set. Once. */
int nnb_queue_add_types(void);

#endif

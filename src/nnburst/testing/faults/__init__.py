"""Faults: processes that are killed or stopped at random points, and what they leave behind.

footprint.py    what a process holds, read from /proc
activities.py   what a client can be doing when a process dies
endless.py      executors that never finish, for kills in the middle
fatal.py        an executor that dies of what it is given
client.py       a client process to be killed, or to stand by and see no error
stuck.py        what a client does that takes nothing of what is there for it
greedy.py       clients that take all that their quotas give
resilient.py    a client that kills its own drivers and goes on
bad_descriptors.py  descriptors of every kind that is no sealed memory
"""

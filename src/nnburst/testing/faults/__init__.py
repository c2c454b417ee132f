"""Faults: processes that are killed or stopped at random points, and what they leave behind.

footprint.py    what a process holds, read from /proc
activities.py   what a client can be doing when a process dies
endless.py      executors that never finish, for kills in the middle
client.py       a client process to be killed, or to stand by and see no error
"""

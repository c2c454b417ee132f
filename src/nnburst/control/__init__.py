"""The control channel: what client and driver say to each other beside the rings.

address.py     where a named driver listens
limits.py      caps on everything that a peer can send
messages.py    the messages
channel.py     one packet there, one packet back: msgpack bytes and file descriptors
line.py        threads that wait for answers: the first one reads for all
connection.py  the calling end: threads call and read their answers, a reader takes what is left
service.py     the answering end: receives calls, handlers run wherever the owner says
objects.py     handles of one connection and who still uses them
"""

"""The control channel: what client and driver say to each other beside the rings.

address.py     where a named driver listens
limits.py      caps on everything that a peer can send
messages.py    the messages
channel.py     one packet there, one packet back: msgpack bytes and file descriptors
connection.py  the calling end: threads call, one reader hands out the replies
service.py     the answering end: one receiver, handlers run wherever the owner says
objects.py     handles of one connection and who still uses them
"""

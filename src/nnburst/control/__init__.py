"""Carries the messages between client and driver that go over a socket."""

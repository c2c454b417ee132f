"""What every driver owes its clients, whatever it computes: checks on cases that it supports."""

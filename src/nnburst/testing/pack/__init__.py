"""Tests single operations of every type, rank and extent, with results that are computed at once."""

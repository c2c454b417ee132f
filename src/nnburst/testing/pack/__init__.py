"""Tests single operations of every type, rank and extent; expected results are computed naively."""

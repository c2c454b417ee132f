"""Measures one network through a driver, beside other engines in this process."""

"""One function for each function of the C interface, by the name that `Function.key` has.

Handles come as the objects that they stand for, addresses and numbers as numbers. What makes an object
returns it; everything else returns None, or raises an error whose code the program gets.
"""

"""The C interface as a table: its functions with their arguments, its structs, its constants.

tools/c_interface writes the public header, the library's entry points with its list of exports, and
docs/c_functions.md from it.
"""

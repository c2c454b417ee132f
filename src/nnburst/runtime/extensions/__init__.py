"""Vendor extensions on the framework side: prefixes, types, and which programs may use them."""

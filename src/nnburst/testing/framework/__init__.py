"""The framework under test: devices that answer as arranged, and conformance over plans."""

"""The framework under test: devices that answer as they are told, and conformance over plans."""

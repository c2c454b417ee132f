"""The framework's objects, with NNAPI's states, result codes and order of checks."""

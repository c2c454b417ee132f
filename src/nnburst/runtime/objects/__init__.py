"""Has the framework's objects with their states, codes and order of checks."""

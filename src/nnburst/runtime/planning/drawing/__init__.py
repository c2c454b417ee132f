"""Plans for people: a table of the steps, and graphs of them as DOT and mermaid text. Pure functions."""

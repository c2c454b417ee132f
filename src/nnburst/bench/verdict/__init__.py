"""Whether two measurements differ: blocks as samples, and no verdict if they spread too much."""

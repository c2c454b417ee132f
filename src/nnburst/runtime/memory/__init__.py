"""What memory objects stand on: the roles that they may be used in, and where their bytes lie."""

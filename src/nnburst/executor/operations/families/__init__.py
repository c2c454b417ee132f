"""What declarations of one family share: operands, checks and shape rules."""

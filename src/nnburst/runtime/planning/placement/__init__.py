"""Which device each operation goes to: what devices support, what they cost, the best of them."""

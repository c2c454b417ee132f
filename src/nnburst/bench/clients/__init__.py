"""Many clients of one service: what each of them gets, and what all of them cost."""

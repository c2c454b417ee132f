"""From files of networks to NNAPI models."""

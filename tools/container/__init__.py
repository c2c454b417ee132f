"""`make container`: the steps of the Dockerfile in roots of debootstrap, then two containers."""

from numpy import *  # noqa: F403 - all of it

"""The wheel for Arm on an emulator: a root of Debian, suites, and networks beside this machine's results."""

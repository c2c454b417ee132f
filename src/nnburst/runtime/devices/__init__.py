"""The devices of the framework: drivers, engines that are launched when needed, the CPU."""

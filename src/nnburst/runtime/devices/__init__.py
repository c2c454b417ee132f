"""What models can be placed on: drivers, engines that are launched when they are needed, the CPU."""

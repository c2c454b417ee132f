"""What the kernels of one family of operations share: convolutions, recurrent networks, boxes, regions."""

"""What a target device does: its kernels and its allocator."""

"""What meta tensors would hold, where somebody asks."""

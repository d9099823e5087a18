"""A small training script in both modes, to learn from and to start from: `dp2ddp new`."""

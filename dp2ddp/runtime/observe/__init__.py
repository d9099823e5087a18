"""What is followed of a run beside its tensors: batches, rows, decisions."""

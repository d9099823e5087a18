"""What stands in the way of DistributedDataParallel, and what is wrong where somebody uses it already."""

"""CUDA devices on the CPU, so that unchanged CUDA scripts run where there is no GPU."""

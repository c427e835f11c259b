"""One check of everything that needs a GPU; scripts/gpu_check.sh starts it."""

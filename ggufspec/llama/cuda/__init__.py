"""NVIDIA's driver, and CUDA toolkits made of wheels from the package index."""

"""Measure, tune and plan speculative decoding with llama.cpp's own GGUF programs."""

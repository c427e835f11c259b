"""The parts of scripts/make_random_gguf.py: shapes, tensor types, random blocks and the vocabulary."""

"""Installed builds of llama.cpp: which are here, what each holds and what it understands."""

"""Command lines of llama.cpp's programs, from one table of how each era spells its flags."""

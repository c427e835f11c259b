"""llama.cpp as a library, in a child process of ours that may crash without taking anything along."""

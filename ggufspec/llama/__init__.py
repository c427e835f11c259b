"""llama.cpp of every era: its source, its builds, its flags and its logs."""

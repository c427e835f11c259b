"""The parts of scripts/train_demo_pair.py: the text that the embedded pair learns, and the models."""

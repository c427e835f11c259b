"""What surrounds every command: its help, verbosity, signals, output and defaults."""

"""The options of the commands, and how their texts become values."""

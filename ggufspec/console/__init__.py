"""The chat with a pair: commands, conversation, transcript and terminal."""

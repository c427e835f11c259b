"""A console for one pair: commands, the conversation, its transcript, and the terminal around them."""

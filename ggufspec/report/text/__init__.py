"""Tables and sentences for the terminal and for Markdown files."""

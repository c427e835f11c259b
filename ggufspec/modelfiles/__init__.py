"""Model files before they run: headers, the Hub, compatibility, memory, and the catalogue of pairs."""

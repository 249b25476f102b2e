"""Pages of the documentation: their commands do what they say, and both languages are in step."""

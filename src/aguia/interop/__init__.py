"""Other people's types: what programs hold instead of plain JSON."""

"""What exists on the wire: typed values, their errors and the catalogue of rules."""

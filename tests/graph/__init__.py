"""Graph and Layer; what a parser makes of files is in tests/parser."""

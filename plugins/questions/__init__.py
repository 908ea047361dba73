"""The built-in questions about the values behind reports; a new file is registered automatically."""

"""Strings that nobody listed: frequent ones are found prefix by prefix; their intervals allow for the search."""

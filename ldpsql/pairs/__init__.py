"""Estimates from reports of sets of (key, value) pairs: frequencies and means of keys."""

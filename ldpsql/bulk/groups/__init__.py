"""Counts and estimates of very many groups, as rows on the disk, some groups at a time."""

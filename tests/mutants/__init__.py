"""Planted faults, each of which the tests named with it must find: ``make mutants``.

A file of this folder with a tuple ``MUTANTS`` is part of the table. An entry names a place by its text, so a fault whose place
has moved to another file, or is written in another way, must be entered again: tests/test_mutants.py names it.
"""

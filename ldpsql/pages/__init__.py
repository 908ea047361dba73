"""Pages and pictures for people: reports, plans, PRIVIC runs, the demonstration."""

from ldpsql import moved

__getattr__ = moved.names_of("pages")

"""Pages and pictures for people: reports, plans, PRIVIC runs, the demonstration."""

"""Files and tables of reports: drawn, shuffled, written next to the destination, and renamed to it."""

"""Sets of key-value pairs: how they are read, the mechanisms for them, frequencies and means."""

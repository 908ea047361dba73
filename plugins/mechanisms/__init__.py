"""One mechanism a file; a new file is picked up by itself."""

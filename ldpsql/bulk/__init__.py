"""Files, tables and streams of any size: perturbed in record batches, published whole or not at all, counted to the end."""

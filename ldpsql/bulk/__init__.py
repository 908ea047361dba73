"""Perturb and count files, tables and streams of any size in record batches, and publish them whole or not at all."""

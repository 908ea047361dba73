"""Which columns of a source are perturbed, by which mechanism, and which are kept."""

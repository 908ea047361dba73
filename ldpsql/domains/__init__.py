"""The values that may be perturbed: columns of Arrow and their types, listed domains, ranges of numbers, sets of pairs."""

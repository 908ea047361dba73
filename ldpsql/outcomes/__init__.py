"""Raw columns next to a perturbed one: their means, sums and variances by its values, and regressions on it, with weights."""

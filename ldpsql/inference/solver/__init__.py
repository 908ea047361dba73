"""The maximum of the likelihood, with a certificate: one way of taking a step a file, and `mle`, which chooses among them."""

"""What is known after estimating: shares with errors, means and quantiles, distances; and the error to expect beforehand."""

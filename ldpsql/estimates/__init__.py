"""Estimates: shares with errors, means and quantiles, distances; and the error to expect before anything is collected."""

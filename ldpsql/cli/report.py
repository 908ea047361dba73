def report() -> None:
    """Soon."""

"""Tests against a real PostgreSQL: `make test-postgres`."""

"""Privacy guarantees: metrics, exact epsilon and claims, and the certificate that compares a channel with its claim.

This room imports channels and the rooms below; nothing here depends on a mechanism.
"""

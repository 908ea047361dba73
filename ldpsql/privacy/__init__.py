"""Privacy guarantees: metrics, exact epsilon and claims, and the certificate that compares a channel with its claim.

This room imports channels and the rooms below; nothing here depends on a mechanism.
"""

from ldpsql import moved

__getattr__ = moved.names_of("privacy")

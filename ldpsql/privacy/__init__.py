"""What a report may give away: metrics, exact epsilon and claims, and the certificate that compares a channel with its claim.

Imports channels and what lies below; nothing here knows a mechanism.
"""

from ldpsql import moved

__getattr__ = moved.names_of("privacy")

"""The mechanisms and estimators that come with ldpsql, registered by the hooks that third parties use."""

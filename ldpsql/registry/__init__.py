"""The plugins and what they offer, and the handles that stand for mechanisms and plans inside a query."""

"""From reports to the maximum of their likelihood: counts, operators (channels as linear maps), the solver.

Estimators build on it; nothing here knows one.
"""

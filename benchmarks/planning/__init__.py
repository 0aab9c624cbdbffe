"""Predictions of the planner beside what others published, and beside what was measured here."""

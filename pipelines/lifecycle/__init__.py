"""Keeps versions and models in order after they are made."""

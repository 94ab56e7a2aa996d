"""Receivers with bandwidth."""

"""Metrics: observations in, estimates with their intervals and tables out. No torch, no protocol."""

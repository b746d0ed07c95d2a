"""Basics that every layer uses: errors, records, specifications, names and progress; no torch."""

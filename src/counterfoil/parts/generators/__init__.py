"""Generators: what makes pictures and moves them. Each module's factory is found by name through the entry points."""

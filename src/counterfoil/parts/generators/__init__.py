"""Generators: parts that make images and move them. Each module's factory is found by name through the entry points."""

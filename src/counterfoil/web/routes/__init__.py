"""Addresses. Each file is thin over the modules beside this folder; pages and JSON for the same things are apart."""

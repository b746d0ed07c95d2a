"""Charts as SVG text that takes its colours from the page, so that it follows dark mode and prints."""

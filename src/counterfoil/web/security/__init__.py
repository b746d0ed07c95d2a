"""Who somebody is, and what a request may not do."""

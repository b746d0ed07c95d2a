"""People judge pictures: what they are asked, in which order, what they said, how far they agree, and what comes of it."""

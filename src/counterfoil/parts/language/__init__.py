"""Words about pictures: captions, rewriters that change one factor of a caption, and the check that they did just that."""

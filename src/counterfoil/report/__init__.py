"""Reports, boards, exported sets and trackers: what people look at and take away. No torch, no protocol."""

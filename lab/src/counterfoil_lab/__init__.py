"""The lab: a small world of dressed-up garments where every attribute of every image is known exactly."""

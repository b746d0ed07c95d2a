"""The lab: a small world of dressed-up garments where every attribute of every picture is known exactly."""

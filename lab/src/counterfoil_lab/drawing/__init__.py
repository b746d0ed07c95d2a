"""Drawing of scenes: a canvas, backgrounds, garments, props and styles, composed back to front."""

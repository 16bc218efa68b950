"""What frames mean: dissection trees, their fields and lines."""

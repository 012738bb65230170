"""What the tools share: their two shapes, the ports they work through, and the models that cross processes."""

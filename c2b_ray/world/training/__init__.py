"""What made the weights of the embedded world: networks, training loops and quality checks. The wheel leaves it out."""

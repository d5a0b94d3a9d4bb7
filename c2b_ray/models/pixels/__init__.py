"""From decoded images to the pixels that a model takes."""

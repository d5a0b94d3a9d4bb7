"""Natural prompts that expose a text-to-image model's hidden bias: `c2b prompts`."""

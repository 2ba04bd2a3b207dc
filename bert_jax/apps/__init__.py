"""Applications of the core: each imports the core, and no other of them."""

"""Models from and to other libraries, with a receipt for every tensor."""

"""Convert models from and to other libraries; a receipt lists every tensor."""

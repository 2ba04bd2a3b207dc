"""The experiments of the paper, and of some that followed it, at any budget."""

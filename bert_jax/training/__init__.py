"""The one training loop and its parts: state, optimizer, step, report, faults."""

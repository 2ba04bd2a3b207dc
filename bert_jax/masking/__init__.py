"""Random masking on the device."""

"""Files, checksums and buckets."""

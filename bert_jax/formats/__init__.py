"""Read and write the model files of other libraries."""

"""The zoo of transformers."""

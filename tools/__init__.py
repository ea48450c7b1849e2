"""What writes the generated pages and databases of this repository."""

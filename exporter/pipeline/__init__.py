"""Zoo to database: what is missing, who traces it, and the one who writes."""

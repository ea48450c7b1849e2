"""The schema of the database and its changes, run by ``store.session`` through Alembic."""

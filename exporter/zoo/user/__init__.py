"""The user's own models: how they are named, found, built and fed."""

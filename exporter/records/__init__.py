"""From a finished recording to the records of a profile."""

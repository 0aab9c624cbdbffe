"""The life of versions and models after they are made."""

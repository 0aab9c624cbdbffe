"""What happens to versions and models after they are made."""

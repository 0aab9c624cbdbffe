"""The life of versions and models after they are made.

1. `statements` are signed records of what a model or a version was made from, which others verify by making it again.
2. `erasure`    removes rows by their keys from every version, and lists the models that were trained on them.
3. `clean`      removes versions and checkpoints that nobody needs.
"""

"""Reads the content of files, for encoders.

1. `picture_files`  reads the pictures that masks and boxes belong to, and decides how a turned one's annotation is turned.
2. `file_kinds`     says what other files are, and why one cannot be encoded.
"""

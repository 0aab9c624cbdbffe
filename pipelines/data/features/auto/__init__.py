"""Encoders that the project chooses: those of `auto`, and the draft of `lockstep init`.

1. `patterns`        names the columns that a pattern stands for.
2. `encoder_choice`  are the rules, which rest on `column_facts`.
3. `choice`          applies them by a sample, and corrects the choice by statistics of all rows.
"""

"""Ratings of items by users, and the next item of a sequence.

1. `settings`   has the tasks `recommendation` and `next_item`.
2. `ratings`    predicts how a user rates an item; `next_item` the next of a sequence, with details that `figures` draws.
3. `answers`    are predictions without torch, also of exported folders.
4. `draft`      is for `lockstep init`.
"""

"""Language models on packed text.

1. `settings`  has the encoders `bytes`, `characters`, `bpe` and `words`, and the task `language`.
2. `encoders`  and `words` cut texts into tokens, which are packed into windows; `byte_pairs` is for `bpe`.
3. `task`      has a transformer or LSTM layers, of `networks`; `windows` are what it predicts at once.
4. `answers`   are predictions without torch, also of exported folders; `details` and `figures` are for the
                page of a run; `draft` is for `lockstep init`.
"""

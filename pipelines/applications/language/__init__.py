"""Language models on packed text.

1. `settings`  has the encoders `bytes`, `characters`, `bpe` and `words`, and the task `language`.
2. `encoders`  cut texts into tokens, which are packed into windows; `byte_pairs` is for `bpe`.
3. `task`      has a `network`, a transformer or LSTM layers, which predicts windows; and details, which `figures` draws.
4. `answers`   are predictions without torch, also of exported folders.
5. `draft`     is for `lockstep init`.
"""

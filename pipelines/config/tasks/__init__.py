"""`task`: what the model learns.

1. `task`  has all kinds by name, and the settings of those that need few; `base` is what every task has.
2. `tabular`, `trees`, `vision`, `forecasting`, `language`, `segmentation`, `detection`, `operator` and `huggingface` have
   the settings of one kind each.
3. `functions`  reads the settings of a function that makes a network.
"""

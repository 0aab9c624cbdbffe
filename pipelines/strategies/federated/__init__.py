"""Federated training: in every round some clients train the model on their own rows, and only their changes are brought together.

1. `rounds`    tells the rows of each client, the clients of a round, and where in the sum a client's change goes; it is the loader of those
               that this worker plays. It refuses, on the driver, a number of them that does not fit the dataset; draws the noise on the sum
               of changes, and accounts for it. `settings` is the section of the config.
2. `federated` trains the model on the rows of each client of a round, and takes its step.
"""

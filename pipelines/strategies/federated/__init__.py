"""Federated training: in every round some clients train the model on their own rows, and only their changes are brought together.

1. `clients`   tells the rows of each client, the clients of a round, and where in the sum a client's change goes.
               It refuses, on the driver, a number of them that does not fit the dataset. `settings` is the section of the config.
2. `rounds`    is the loader: a round's clients that this worker plays, each with its rows.
3. `client`    trains the model on one client's rows; `strategy` plays the clients of a round and takes its step.
4. `privacy`   draws the noise on the sum of changes, and accounts for it.
"""

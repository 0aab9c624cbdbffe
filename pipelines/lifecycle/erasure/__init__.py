"""Erases rows by their keys: from all versions of a dataset, their quarantines, MLflow's artifacts and outputs of predictions.

1. `erased_keys`  reads the keys of a command, and hashes them as ETL has hashed those of its rows; `spark_hashes` does so for rare
                  types.
2. `search`       finds their rows in every part of every version, each part once; `quarantine` finds them among refused rows.
3. `parts`        writes the parts concerned again without them, into an attempt of its own.
4. `publish`      makes indexes and manifests of all versions that refer to these parts, and puts them in place of the old ones.
5. `tracked`      removes what runs in MLflow keep of the rows, and lists the models that were trained on them; `predictions` writes outputs
                  that were named again.
6. `journal`      records each phase before it is entered, so that an erasure that was interrupted goes on; `phases` takes one after
                  another. Old files stay until the grace time is over, for those who still read them. `certificate` says at the end
                  what was erased and where, and can be compared with the files again.
7. `erase`        goes on with what was interrupted, searches, and begins; `command` says what was done, or would be.
"""

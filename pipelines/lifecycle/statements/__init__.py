"""Statements: signed records of what a model or a dataset was made from, by which whoever has the sources can make it again.

1. `keys`         make, read and use keys; `envelope` holds signed bytes with their signatures, by DSSE.
2. `materials`    are the code and the packages by their digests, `dataset_record` a version with the digests of its pieces, `digest_log`
                  the losses and states of a training.
3. `provenance`   is the statement: in-toto v1, with the predicate of SLSA provenance v1. `finished_run` reads its parts from MLflow and the
                  dataset, and `attest` signs and writes it. `attested_versions` marks the version that it names.
4. `checks`       compare each part with what a machine has, and `verification` makes dataset and model again and compares every step.
5. `model_signature`, `bill_of_materials`, `croissant` and `model_card` say the same in the formats of others: OpenSSF Model Signing,
                  CycloneDX, Croissant, Markdown.
"""

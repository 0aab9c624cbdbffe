"""Serves a model over HTTP with Ray Serve, and follows its alias in MLflow.

1. `request`      reads the token of a request and its rows, in one of MLflow's forms, or refuses it with a reason.
2. `served_model` predicts the rows of several requests together, and refuses single rows with a reason.
3. `openapi`      describes requests and answers as JSON schema and OpenAPI, also as a page for people.
4. `counters`     counts requests, rows and seconds of all replicas, for Prometheus.
5. `replica`      is a process that answers requests: it gathers rows while others are predicted, and follows the alias of the model.
6. `start`        starts replicas and the HTTP server on a Ray cluster, and stops them.
"""

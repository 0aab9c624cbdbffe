"""MLflow's own server application as one process: python -m chaos.server PORT STORE ARTIFACTS"""

import os
import sys

if __name__ == "__main__":
    port, store, artifacts = sys.argv[1:]
    os.environ.update(
        _MLFLOW_SERVER_FILE_STORE=store,
        _MLFLOW_SERVER_ARTIFACT_ROOT="mlflow-artifacts:/",
        _MLFLOW_SERVER_SERVE_ARTIFACTS="true",
        _MLFLOW_SERVER_ARTIFACT_DESTINATION=artifacts,
    )
    from mlflow.server import app
    from werkzeug.serving import make_server

    make_server("127.0.0.1", int(port), app, threaded=True).serve_forever()

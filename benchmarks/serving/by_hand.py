"""A server written by hand for a model of MLflow: uvicorn benchmarks.serving.by_hand:app --workers 2"""

import os
from typing import Any

import mlflow
import pandas as pd
from fastapi import FastAPI

mlflow.set_tracking_uri(os.environ["MLFLOW_TRACKING_URI"])
model = mlflow.pyfunc.load_model(os.environ["BY_HAND_MODEL"])
app = FastAPI()


@app.post("/invocations")
def invocations(content: dict[str, Any]) -> dict[str, Any]:
    predicted = model.predict(pd.DataFrame(content["dataframe_records"]))
    return {"predictions": predicted.to_dict(orient="records")}

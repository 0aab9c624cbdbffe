"""The error of a request that is not answered with predictions."""


class RequestError(Exception):
    """`status` is that of HTTP."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status

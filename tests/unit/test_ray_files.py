"""What a training's own Ray leaves on the machine."""

from pathlib import Path

import pytest

from pipelines.errors import ConfigError, TrainingError
from pipelines.launch.own_ray import keep_token, ray_folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_token_is_this_user_s_alone(home: Path) -> None:
    keep_token()
    token = home / ".ray/auth_token"
    assert (mode(token.parent), mode(token), len(token.read_text())) == (0o700, 0o600, 64)
    assert list(token.parent.iterdir()) == [token]


def test_a_token_that_is_there_is_kept_and_closed(home: Path) -> None:
    token = home / ".ray/auth_token"
    token.parent.mkdir(mode=0o755)
    token.write_text("theirs")
    token.chmod(0o644)
    keep_token()
    assert (mode(token.parent), mode(token), token.read_text()) == (0o700, 0o600, "theirs")


@pytest.mark.parametrize("variable", [("RAY_AUTH_MODE", "disabled"), ("RAY_AUTH_TOKEN", "x"), ("RAY_AUTH_TOKEN_PATH", "x")])
def test_none_is_made_where_none_is_needed(home: Path, monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]) -> None:
    monkeypatch.setenv(*variable)
    keep_token()
    assert not (home / ".ray").exists()


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, SystemExit, ConfigError, TrainingError, OSError])
def test_the_folder_is_closed_and_goes_unless_ray_s_logs_may_explain(error: type[BaseException] | None) -> None:
    folder = Path()
    try:
        with ray_folder() as path:
            folder = Path(path).parent
            assert mode(folder) == 0o700
            if error:
                raise error
    except BaseException as raised:
        assert error and isinstance(raised, error)
    assert folder.exists() == (error in (TrainingError, OSError))
    if folder.exists():
        folder.rmdir()

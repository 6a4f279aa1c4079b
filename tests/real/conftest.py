"""Engines of the real tests: one for the whole session, one with a tied head for the tests that need it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.real.engines import LiveEngine, Loop, make_model


@pytest.fixture(scope="session")
def run() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture(scope="session")
def session_engine(run: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEngine]:
    pytest.importorskip("vllm")
    folder = tmp_path_factory.mktemp("untied")
    live = LiveEngine(run, make_model(folder, tied=False), folder, prefix_caching=True)
    yield live
    live.close()


@pytest.fixture
def live(session_engine: LiveEngine) -> LiveEngine:
    """The session's engine, holding the model's weights under a new version."""
    session_engine.push()
    return session_engine


@pytest.fixture(scope="module")
def tied(run: Loop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveEngine]:
    pytest.importorskip("vllm")
    folder = tmp_path_factory.mktemp("tied")
    extension = "tests.real.faulty_worker.FaultyWorker"
    live = LiveEngine(run, make_model(folder, tied=True), folder, worker_extension=extension)
    yield live
    live.close()

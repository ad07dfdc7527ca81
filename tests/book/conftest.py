"""The folder in which notebooks run: one for all tests, so that each notebook runs once."""

import pytest


@pytest.fixture(scope="session")
def elsewhere(tmp_path_factory):
    return tmp_path_factory.mktemp("elsewhere")

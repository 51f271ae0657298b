"""What the tests of this folder need: bubblewrap, or they are left out."""

import pytest

from podsrl.errors import UsageError
from podsrl.score.sandbox import BWRAP, require


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    try:
        require(BWRAP)
    except UsageError as error:
        pytest.skip(str(error))

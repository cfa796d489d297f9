"""With a real pretrained model, in a separate environment: make test-pretrained."""

import pytest

from tests.support import warm
from tests.support.documents import REAL_MODEL, run_page


@pytest.fixture(scope="session")
def tutorial(tmp_path_factory):
    """The folder in which the page was followed, and what it printed. `run_page` raises where a block fails or prints
    something else than the page says."""
    folder = tmp_path_factory.mktemp("tutorial")
    output = run_page(REAL_MODEL, folder, folder / "cache", python=warm.python())
    return folder / "page", output


@pytest.fixture(scope="session")
def smollm2(tutorial):
    """The folder that `hgpo-gym import-gguf` makes of the GGUF file: the tutorial's."""
    return tutorial[0] / "models" / "smollm2"

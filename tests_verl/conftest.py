"""One thread, as in the other tests; before torch is imported."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

"""The policy update. Read the files in this order:

- `policy_update.py`: mini-batches and optimiser steps.
- `loss.py`: a token's loss and its terms.
- `objectives/`: the term that papers differ in, one file each.
- `corrections.py` and `aggregation.py`: weights and means.
- `samples.py`: the training samples; `measured.py`: quantities computed before the weights change.
- `weights.py` (how processes hold a model), `optimizer.py` and `metrics.py`: supporting parts.

To change the loss, read `loss.py` and edit or add one file in `objectives/`.
"""

"""The policy update. To read in this order:

`policy_update.py`, mini-batches and optimiser steps; `loss.py`, a token's loss and what it is made of; `objectives/`,
the part that papers differ in, one a file; `corrections.py` and `aggregation.py`, weights and means; `rows.py`, what
is trained on, and `measured.py`, what is known of it before the weights change. `weights.py` (how processes hold a
model), `optimizer.py` and `metrics.py` are equipment.

Changing the loss means reading `loss.py` and editing, or adding, one file in `objectives/`.
"""

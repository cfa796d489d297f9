"""Critics: the value predictions that estimators read. `critic.py` predicts and learns; `networks.py` has the
networks."""

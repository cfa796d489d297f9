"""A softmax over scores of the admissible actions.

Read the modules in this order: `words.py`, parsed texts; `episode.py`, the memory of an episode; `places.py`, its place
among nested pages; `features.py`, the features of an action in its step; `network.py`, from features to a score;
`policy.py`.
"""

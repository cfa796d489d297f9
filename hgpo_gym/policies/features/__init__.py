"""A softmax over scores of the admissible actions. To read in this order: `words.py`, texts taken apart; `episode.py`,
what is remembered of an episode; `places.py`, where it is, of pages within pages; `features.py`, an action in its
moment as numbers; `network.py`, from these to a score; `policy.py`."""

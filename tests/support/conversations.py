"""Conversations that a policy plays without an environment."""

from hgpo_gym.policies import Request, Sampling
from hgpo_gym.policies.base import EarlierTurn

TURNS, EPISODES = 4, 6
ACTIONS = ("go left", "go right", "stay here")


def play(policy, read=None):
    """Records [turn][episode] of conversations of different lengths; the first prompt is common to three of them."""
    sampling = Sampling(max_new_tokens=7)
    requests = [Request(f"Door {n // 3}.", ACTIONS, seed=(n,), opening=f"Door {n // 3}.") for n in range(EPISODES)]
    records = []
    for turn in range(TURNS):
        # One action alone leaves nothing to compute, and nothing to keep.
        requests = [
            Request(r.prompt, ACTIONS[:1] if (turn, n) == (2, 1) else ACTIONS, seed=(n, turn), earlier=r.earlier,
                    opening=r.opening)
            for n, r in enumerate(requests)
        ]  # fmt: skip
        if read is not None:
            read.append(0)
        responses = policy.generate(requests, sampling)
        records.append([response.tokens for response in responses])
        requests = [
            Request(
                "x" * (n + 1) + f" wall {turn}.",
                earlier=(*r.earlier, EarlierTurn(r.prompt, response.text, response.tokens, r.opening)),
                opening="Door.",
            )
            for n, (r, response) in enumerate(zip(requests, responses, strict=True))
        ]
    return records

"""Policies: they answer prompts."""

from hgpo_gym.policies.base import Policy, Request, Response, Sampling, TokenRecord
from hgpo_gym.policies.scripted import ExpertPolicy, RandomPolicy

__all__ = ["ExpertPolicy", "Policy", "RandomPolicy", "Request", "Response", "Sampling", "TokenRecord"]

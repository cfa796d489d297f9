"""What changes the weights: AdamW, in 32 or 8 bits, with a linear warm-up."""

import torch

from hgpo_gym.trainers.settings import TrainerSettings


def make_optimizer(model: torch.nn.Module, settings: TrainerSettings) -> torch.optim.Optimizer:
    """AdamW over the parameters that train: all of them, or the adapter's.

    Its state has two numbers a parameter: of the parameter's own format, or with `adamw_8bit` of 8 bits, in blocks that
    share a scale (Dettmers et al., 2022).

    Raises:
        ModuleNotFoundError: 8 bits without bitsandbytes.
    """
    parameters = trained_parameters(model)
    options = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, **options)
    try:
        from bitsandbytes.optim import AdamW8bit
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"trainer.optimizer={settings.optimizer} needs bitsandbytes: pip install 'hgpo_gym[bitsandbytes]'"
        ) from error
    return AdamW8bit(parameters, **options)


def warm_up(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LambdaLR:
    """A learning rate that rises in a straight line over `steps` optimiser steps."""
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / max(1, steps)))


def trained_parameters(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]

"""The learning rate of each step, by `train.schedule` and `train.changes`."""

from math import cos, pi

from pipelines.config.train.train import Train

ONE_CYCLE_WARMUP = 0.3
ONE_CYCLE_START, ONE_CYCLE_END = 1 / 25, 1 / 250_000
"""Fractions of the peak at which the cycle starts and ends, as in torch's OneCycleLR."""


def learning_rate(settings: Train, step: int, total_steps: int, steps_per_epoch: int) -> float:
    """The rate of step `step`, counted from 0, of a run of `total_steps`."""
    peak = settings.lr_after(step // steps_per_epoch)
    if settings.schedule == "one_cycle":  # up to 1 and down to almost 0, each along half a cosine (Smith and Topin 2017)
        top, last = max((settings.warmup or ONE_CYCLE_WARMUP) * total_steps - 1, 0.0), total_steps - 1
        if step <= top:
            return peak * _half_cosine(ONE_CYCLE_START, 1.0, step / top if top else 1.0)
        return peak * _half_cosine(1.0, ONE_CYCLE_END, (step - top) / (last - top))
    warmup_steps = round(settings.warmup * total_steps)
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if settings.schedule == "cosine":
        return peak * _half_cosine(1.0, 0.0, (step - warmup_steps) / max(total_steps - warmup_steps, 1))
    if settings.schedule == "step":
        return peak * settings.lr_gamma ** (step // steps_per_epoch // settings.step_epochs)
    return peak


def _half_cosine(start: float, end: float, share: float) -> float:
    """The value at `share` of the way from `start` to `end`, along half a cosine."""
    return end + (start - end) * (1 + cos(pi * share)) / 2

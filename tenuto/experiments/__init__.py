"""Experiments of the paper: which jobs make which table and figure."""

from tenuto.experiments import atari, chain, gridworlds, minatar, pendulum, zoo

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        *(chain.EXPERIMENT, gridworlds.EXPERIMENT, pendulum.EXPERIMENT),
        *(atari.EXPERIMENT, minatar.EXPERIMENT, zoo.EXPERIMENT),
    )
}

"""What others publish for problems of the zoo, as data: RL-Zoo's and MinAtar's own figures."""

from tenuto.experiments.published import Note

# benchmark.md of DLR-RM/rl-baselines3-zoo (as of April 2026): mean reward and standard deviation over the evaluation
# episodes of one trained model, by DQN or SAC of Stable-Baselines3 with numbers tuned for the problem. LunarLander is
# there in its version v2.
RL_ZOO = {
    "CartPole-v1": (500.0, 0.0),
    "Acrobot-v1": (-76.639, 11.752),
    "MountainCar-v0": (-100.849, 9.925),
    "LunarLander-v3": (154.382, 79.241),
    "Pendulum-v1": (-156.995, 88.714),
    "MountainCarContinuous-v0": (94.679, 1.134),
    "LunarLanderContinuous-v3": (260.390, 65.467),  # after 500,000 steps
}

# Young and Tian, "MinAtar" (arXiv:1903.03176): training return of DQN (ε = 0.1) after 5 million frames, mean of 30
# runs. There is no table: the numbers are read from the learning curves in the README of kenjyoung/MinAtar. Its
# Seaquest had an error then (before version 1.0.11).
MINATAR_DQN = {
    "minatar-breakout": 10.0,
    "minatar-asterix": 17.0,
    "minatar-freeway": 50.0,
    "minatar-seaquest": 20.0,
    "minatar-space_invaders": 43.0,
}

PLAIN = ("ddqn", "sac", "sb3-dqn-tuned", "sb3-sac-tuned")  # columns of the algorithms that were published


def result(problem: str, column: str) -> tuple[float | None, float | None]:
    """The published mean and its spread, as far as there are any."""
    if column == "ddqn" and problem in MINATAR_DQN:
        return MINATAR_DQN[problem], None
    if column in PLAIN:
        return RL_ZOO.get(problem, (None, None))
    return None, None


_ABOUT = (
    "Published values are those of RL-Zoo's {}, with numbers tuned for each problem; their standard deviation is that "
    "of episodes{}."
)
NOTES = (
    Note("discrete return", "ddqn", _ABOUT.format("DQN", ", LunarLander was version v2")),
    Note("continuous return", "sac", _ABOUT.format("SAC", ", LunarLander was version v2 and had 500,000 steps")),
    Note(
        "minatar return",
        "ddqn",
        "Published values are training returns of the authors' DQN after 5,000,000 frames, read from a figure; their "
        "Seaquest had an error.",
    ),
)
